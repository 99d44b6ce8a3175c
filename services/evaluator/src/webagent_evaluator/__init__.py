"""Verdicts: did the task succeed; benchmark statistics."""
