"""The stream of a job, as those who follow it see it."""
