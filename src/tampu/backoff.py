"""Backoff: how long to wait before the next attempt."""

import math
from dataclasses import dataclass
from random import Random
from typing import Final, Self

from tampu.errors import OptionError
from tampu.util.clock import MAX_MS, Duration, to_ms
from tampu.util.options import at_least, check_type
from tampu.wire.envelope import BackoffKind, WireBackoff


@dataclass(frozen=True, slots=True)
class Backoff:
    """The wait between attempts; created with `Backoff.fixed` or `Backoff.exponential`.

    After the cap is applied, a fresh random jitter is added.
    """

    kind: BackoffKind
    delay_ms: int
    max_ms: int
    multiplier: float
    jitter_ms: int

    @classmethod
    def fixed(cls, delay: Duration, *, jitter: Duration = 0) -> Self:
        """The same wait each time."""
        delay_ms = to_ms("delay", delay)
        return cls(BackoffKind.FIXED, delay_ms, delay_ms, 1.0, to_ms("jitter", jitter))

    @classmethod
    def exponential(
        cls,
        delay: Duration,
        *,
        max: Duration = 30,
        multiplier: float = 2.0,
        jitter: Duration = 0,
    ) -> Self:
        """A wait that is multiplied each time, up to `max`."""
        given: object = multiplier
        if not isinstance(given, int | float) or not 1 <= given < math.inf:
            raise OptionError("multiplier", multiplier, "must be a finite number of at least 1")
        return cls(
            BackoffKind.EXPONENTIAL,
            to_ms("delay", delay),
            to_ms("max", max),
            float(multiplier),
            to_ms("jitter", jitter),
        )

    def to_wire(self) -> WireBackoff:
        """As it is sent with a job: complete, so that no default of a worker changes it."""
        return WireBackoff(
            self.kind.value, self.delay_ms, self.max_ms, self.multiplier, self.jitter_ms
        )

    def with_override(self, wire: WireBackoff) -> "Backoff":
        """The backoff that a job carries; this one fills what it leaves out."""
        multiplier = self.multiplier if wire.multiplier is None else wire.multiplier
        return Backoff(
            wire.effective_kind,
            wire.delay_ms,
            self.max_ms if wire.max_delay_ms is None else wire.max_delay_ms,
            multiplier,
            self.jitter_ms if wire.jitter_ms is None else wire.jitter_ms,
        )

    def wait_ms(self, failed: int, rng: Random) -> int:
        """The wait in milliseconds after so many failed attempts, from 0 to ten years.

        A job of another program may carry any 64-bit number, even NaN.
        """
        base = float(self.delay_ms)
        if self.kind is BackoffKind.EXPONENTIAL:
            try:
                base *= self.multiplier ** (max(failed, 1) - 1)
            except OverflowError:
                base = math.inf
        capped = min(base, self.max_ms) if base == base else 0  # noqa: PLR0124 - NaN
        jitter = rng.randrange(self.jitter_ms) if self.jitter_ms else 0
        return min(int(max(0, capped)) + jitter, MAX_MS)


DEFAULT_BACKOFF: Final = Backoff(BackoffKind.EXPONENTIAL, 100, 30_000, 2.0, 100)
"""The same as ChasquiMQ's: 100 ms, doubled up to 30 s, plus up to 100 ms."""

MAX_ATTEMPTS: Final = 2**32 - 1
"""The largest number that fits on the wire."""


def check_retrying(attempts: object, backoff: object) -> None:
    """Refuse invalid attempts or backoff. None is valid: then another setting applies.

    0 attempts are refused too: such a job could never run.
    """
    if attempts is not None:
        at_least("attempts", attempts, 1, most=MAX_ATTEMPTS)
    if backoff is not None:
        expected = "Backoff.fixed(...) or Backoff.exponential(...)"
        check_type("backoff", backoff, Backoff, accepted=expected)
