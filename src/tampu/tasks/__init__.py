"""Tasks: functions whose calls can be added as jobs."""
