"""`Task`, which Celery has here too."""

from tampu.compat.celery.task import Task

__all__ = ["Task"]
