"""What a loop does while something fails: growing pauses, and two log lines for an outage."""

from logging import Logger
from random import Random
from time import monotonic
from typing import Final

_MOST_DOUBLINGS: Final = 30
_RECONNECT_FIRST_S: Final = 0.05
_RECONNECT_LONGEST_S: Final = 2.0


class Pauses:
    """Growing pauses: `first_s`, then doubled each time, at most `longest_s`.

    With `spread`, pauses are drawn at random, so that clients that failed together do not all come
    back together: the first from 0 to its length, the others from half of theirs to all of it.
    """

    def __init__(self, first_s: float, longest_s: float, *, spread: Random | None = None) -> None:
        self._first_s, self._longest_s = first_s, longest_s
        self._spread = spread
        self._count = 0

    def next_s(self, *, skip_first: bool = False) -> float:
        """The next pause in seconds. `skip_first` makes the first one 0; it still counts."""
        count, self._count = self._count, self._count + 1
        if skip_first and not count:
            return 0.0
        pause_s = min(self._longest_s, self._first_s * 2.0 ** min(count, _MOST_DOUBLINGS))
        if self._spread is None:
            return pause_s
        return self._spread.uniform(pause_s / 2 if count else 0.0, pause_s)

    def reset(self) -> None:
        """Start again with the first pause, after a success."""
        self._count = 0


def reconnect_pauses() -> Pauses:
    """Pauses between attempts to use a server that failed: short at first, at most 2 seconds."""
    spread = Random()  # noqa: S311 - spreads clients, guards nothing
    return Pauses(_RECONNECT_FIRST_S, _RECONNECT_LONGEST_S, spread=spread)


class Outage:
    """Something that fails for a while: logged once when it begins and once when it ends.

    `what` completes "cannot ...", as in "read events"; `meanwhile` says what happens until then.
    """

    def __init__(
        self, logger: Logger, what: str, *, meanwhile: str = "retrying", **facts: str
    ) -> None:
        self._logger, self._what, self._meanwhile, self._facts = logger, what, meanwhile, facts
        self._began_at: float | None = None

    @property
    def is_on(self) -> bool:
        """Whether the last attempt failed."""
        return self._began_at is not None

    def note_failure(self, error: Exception) -> None:
        """An attempt failed; the first of a row is logged."""
        if self._began_at is None:
            self._began_at = monotonic()
            self._logger.warning(
                "cannot %s, %s: %s",
                self._what,
                self._meanwhile,
                error,
                extra={**self._facts, "problem": str(error)},
            )

    def note_success(self) -> None:
        """An attempt succeeded; the end of an outage is logged."""
        if self._began_at is not None:
            lasted_s, self._began_at = monotonic() - self._began_at, None
            self._logger.warning(
                "can %s again after %.1f s",
                self._what,
                lasted_s,
                extra={**self._facts, "lasted_s": lasted_s},
            )
