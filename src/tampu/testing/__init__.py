"""The test kit: runs the jobs of an app in a test, on a real server, with time that you move."""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tampu.testing.enqueued import EnqueuedJob
    from tampu.testing.jobs import Jobs
    from tampu.testing.kit import Kit, SyncJobs, use
    from tampu.testing.made_job import MadeJob, make_job
    from tampu.testing.queue_bench import Attempt

__all__ = [
    "Attempt",
    "EnqueuedJob",
    "Jobs",
    "Kit",
    "MadeJob",
    "SyncJobs",
    "make_job",
    "use",
]

# Imported on demand: pytest loads the plugin in every project that has tampu installed.
_HOMES: Final = {
    "tampu.testing.enqueued": "EnqueuedJob",
    "tampu.testing.jobs": "Jobs",
    "tampu.testing.kit": "Kit SyncJobs use",
    "tampu.testing.made_job": "MadeJob make_job",
    "tampu.testing.queue_bench": "Attempt",
}

if not TYPE_CHECKING:  # to a type checker any name would be one

    def __getattr__(name: str) -> object:
        """One of the public names, from the module that it lives in."""
        for home, names in _HOMES.items():
            if name in names.split():
                found = globals()[name] = getattr(import_module(home), name)
                return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
