"""The task that every backend runs."""

from django.tasks import task


@task
def nothing(number: int) -> None:
    """Do nothing."""
