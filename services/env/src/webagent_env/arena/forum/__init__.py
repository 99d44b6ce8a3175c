"""A forum: boards, threads, comments, votes, profiles."""
