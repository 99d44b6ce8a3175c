"""A code host: projects, issues, merge requests, members, commits, stars, to-dos."""
