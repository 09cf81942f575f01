"""As in Celery: `uuid`, and the module `log`."""

from uuid import uuid4

__all__ = ["uuid"]


def uuid() -> str:
    """A new id, for a job with a `task_id` of its own."""
    return str(uuid4())
