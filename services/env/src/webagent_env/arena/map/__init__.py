"""A map of one region: search, places, what is near, directions, saved places, suggested edits."""
