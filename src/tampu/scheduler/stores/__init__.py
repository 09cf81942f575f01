"""Where the in-process scheduler keeps the states of its tasks."""
