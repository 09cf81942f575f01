"""A queue's schedules: stored rules that add jobs."""
