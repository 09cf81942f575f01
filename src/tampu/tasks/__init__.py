"""Tasks: functions whose calls are jobs. What they take, what they are given, how they are run."""
