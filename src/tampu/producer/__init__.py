"""From `Queue.add` to the script that adds jobs."""
