"""What happens when an instant comes while the run of an earlier one is not over."""

from enum import Enum, auto


class Overlap(Enum):
    """How the runs of one schedule may overlap."""

    ALLOW = auto()  # run beside the one that is running
    SKIP = auto()  # drop this fire
    QUEUE_ONE = auto()  # run after the one that is running; at most one waits
    CANCEL_RUNNING = auto()  # cancel the one that is running, then run
