"""The job, under the name that chasquimq has for it."""

from tampu.compat.adapter.job import Job

__all__ = ["Job"]
