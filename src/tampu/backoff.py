"""How long to wait before the next attempt."""

import math
from dataclasses import dataclass
from random import Random
from typing import Final, Self

from tampu.errors import OptionError
from tampu.util.clock import MAX_MS, Duration, to_ms
from tampu.wire.envelope import BackoffKind, WireBackoff


@dataclass(frozen=True, slots=True)
class Backoff:
    """The wait between attempts; made by `Backoff.fixed` or `Backoff.exponential`.

    Jitter is drawn anew each time and added to the wait, behind the cap.
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
        """A wait that grows by the multiplier each time, up to `max`."""
        given: object = multiplier
        if not isinstance(given, int | float) or not 1 <= given < math.inf:
            raise OptionError("multiplier", multiplier, "must be a finite number from 1")
        return cls(
            BackoffKind.EXPONENTIAL,
            to_ms("delay", delay),
            to_ms("max", max),
            float(multiplier),
            to_ms("jitter", jitter),
        )

    def to_wire(self) -> WireBackoff:
        """As it travels with a job; nothing is left to what a worker happens to default to."""
        return WireBackoff(
            self.kind.value, self.delay_ms, self.max_ms, self.multiplier, self.jitter_ms
        )

    def overridden(self, wire: WireBackoff) -> "Backoff":
        """What a job asks for; what it leaves open is ours."""
        multiplier = self.multiplier if wire.multiplier is None else wire.multiplier
        return Backoff(
            wire.effective_kind,
            wire.delay_ms,
            self.max_ms if wire.max_delay_ms is None else wire.max_delay_ms,
            multiplier,
            self.jitter_ms if wire.jitter_ms is None else wire.jitter_ms,
        )

    def wait_ms(self, failed: int, rng: Random) -> int:
        """The wait after so many failed attempts; never negative, never beyond ten years.

        Numbers of a peer's job may be anything that 64 bits hold, NaN included.
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
"""The peer's own: 100 ms, doubling up to 30 s, and up to 100 ms more."""

MAX_ATTEMPTS: Final = 2**32 - 1
"""What the wire has room for."""


def check_retrying(attempts: object, backoff: object) -> None:
    """Refuse what cannot be, naming it; None leaves it to somebody else.

    No attempts at all are refused too: such a job would be dead on arrival.
    """
    if attempts is not None and not (
        isinstance(attempts, int)
        and not isinstance(attempts, bool)
        and 1 <= attempts <= MAX_ATTEMPTS
    ):
        raise OptionError("attempts", attempts, f"must be a whole number from 1 to {MAX_ATTEMPTS}")
    if backoff is not None and not isinstance(backoff, Backoff):
        raise OptionError(
            "backoff", backoff, "expected Backoff.fixed(...) or Backoff.exponential(...)"
        )
