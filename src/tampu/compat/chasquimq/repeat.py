"""Backoffs, schedules and missed-fire policies, as in chasquimq: plain values."""

from dataclasses import dataclass
from typing import Any

__all__ = ["BackoffSpec", "MissedFiresPolicy", "RepeatPattern", "RepeatableMeta"]


@dataclass(frozen=True)
class RepeatPattern:
    """When a schedule fires; created by `cron` or `every`."""

    kind: str
    expression: str | None = None
    tz: str | None = None
    interval_ms: int | None = None

    @staticmethod
    def cron(expression: str, *, tz: str | None = None) -> "RepeatPattern":
        """A cron expression with five fields, or six with seconds; in UTC unless `tz` is set."""
        return RepeatPattern("cron", expression=expression, tz=tz)

    @staticmethod
    def every(interval_ms: int) -> "RepeatPattern":
        """An interval in milliseconds."""
        return RepeatPattern("every", interval_ms=interval_ms)

    def to_dict(self) -> dict[str, Any]:
        """The dict that `Producer` takes."""
        match self.kind:
            case "cron":
                zone = {} if self.tz is None else {"tz": self.tz}
                return {"kind": "cron", "expression": self.expression, **zone}
            case "every":
                return {"kind": "every", "interval_ms": self.interval_ms}
            case _:
                raise ValueError(f"unknown RepeatPattern kind {self.kind!r}")


@dataclass(frozen=True)
class BackoffSpec:
    """The delay between attempts of a job; created by `fixed` or `exponential`."""

    kind: str
    delay_ms: int
    max_delay_ms: int | None = None
    multiplier: float | None = None
    jitter_ms: int | None = None

    @staticmethod
    def fixed(delay_ms: int, jitter_ms: int | None = None) -> "BackoffSpec":
        """The same delay before each attempt."""
        return BackoffSpec("fixed", delay_ms, jitter_ms=jitter_ms)

    @staticmethod
    def exponential(
        initial_ms: int,
        *,
        multiplier: float = 2.0,
        max_ms: int | None = None,
        jitter_ms: int | None = None,
    ) -> "BackoffSpec":
        """A delay that is multiplied after each attempt."""
        return BackoffSpec("exponential", initial_ms, max_ms, multiplier, jitter_ms)

    def to_dict(self) -> dict[str, Any]:
        """The dict that `Producer` takes, without the fields that are None."""
        given = {
            "kind": self.kind,
            "delay_ms": self.delay_ms,
            "max_delay_ms": self.max_delay_ms,
            "multiplier": self.multiplier,
            "jitter_ms": self.jitter_ms,
        }
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class MissedFiresPolicy:
    """What happens to missed fires; created by `skip`, `fire_once` or `fire_all`."""

    kind: str
    max_catchup: int | None = None

    @staticmethod
    def skip() -> "MissedFiresPolicy":
        """Skip missed fires."""
        return MissedFiresPolicy("skip")

    @staticmethod
    def fire_once() -> "MissedFiresPolicy":
        """Add one job for all missed fires."""
        return MissedFiresPolicy("fire-once")

    @staticmethod
    def fire_all(max_catchup: int) -> "MissedFiresPolicy":
        """Add a job for each missed fire, at most `max_catchup` of them."""
        given: object = max_catchup
        if not isinstance(given, int) or isinstance(given, bool):
            raise TypeError(f"max_catchup must be an int, got {type(given).__name__}")
        if given < 1:
            raise ValueError(f"max_catchup must be a positive integer (>= 1), got {given}")
        return MissedFiresPolicy("fire-all", given)

    def to_dict(self) -> dict[str, Any]:
        """The dict that `Producer` takes."""
        match self.kind:
            case "skip" | "fire-once":
                return {"kind": self.kind}
            case "fire-all":
                return {"kind": self.kind, "max_catchup": int(self.max_catchup or 0)}
            case _:
                raise ValueError(f"unknown MissedFiresPolicy kind {self.kind!r}")


@dataclass(frozen=True)
class RepeatableMeta:
    """A stored schedule, without its payload."""

    key: str
    job_name: str
    pattern: RepeatPattern
    next_fire_ms: int
    limit: int | None = None
    start_after_ms: int | None = None
    end_before_ms: int | None = None
    missed_fires: MissedFiresPolicy | None = None
