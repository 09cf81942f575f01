"""Waits and schedules, under the name that chasquimq has for them."""

from tampu.compat.adapter.repeat import (
    BackoffSpec,
    MissedFiresPolicy,
    RepeatableMeta,
    RepeatPattern,
)

__all__ = ["BackoffSpec", "MissedFiresPolicy", "RepeatPattern", "RepeatableMeta"]
