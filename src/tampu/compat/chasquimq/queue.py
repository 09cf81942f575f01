"""The queue, under the name that chasquimq has for it."""

from tampu.compat.adapter.address import CredentialProvider
from tampu.compat.adapter.delay import DelayMsLike
from tampu.compat.adapter.queue import MissedFiresLike, Queue, RepeatLike
from tampu.compat.adapter.retrying import BackoffLike

DelayLike = DelayMsLike

__all__ = [
    "BackoffLike",
    "CredentialProvider",
    "DelayLike",
    "DelayMsLike",
    "MissedFiresLike",
    "Queue",
    "RepeatLike",
]
