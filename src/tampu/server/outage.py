"""Outages: logged once when they begin and once when they end, for all parts that they hit."""

import logging
import threading
from random import Random
from time import monotonic
from typing import ClassVar, Final
from weakref import WeakValueDictionary

from tampu.errors import ConnectionLost, OutboxFailed, ServerError, ServerUnreachable, Verdict
from tampu.util.pauses import Pauses

logger = logging.getLogger(__name__)
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0


class Outage:
    """The outage of one server. Safe to use from several threads.

    A lost connection or a busy server hits every part of the program that uses the server. The
    first part that notices logs the beginning, and the last one that works again logs the end.
    """

    _known: ClassVar[WeakValueDictionary[str, "Outage"]] = WeakValueDictionary()
    _knowing: ClassVar = threading.Lock()

    @classmethod
    def of(cls, server: str) -> "Outage":
        """The one of a server: all that this process has to do with the server shares it."""
        with cls._knowing:
            found = cls._known.get(server)
            if found is None:
                found = cls._known[server] = cls(server)
            return found

    def __init__(self, server: str) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._parts: set[Trouble] = set()
        self._began_at = 0.0
        self._any_recovered = False

    def part(self, what: str) -> "Trouble":
        """The state of one part; `what` begins a log line, such as "reading queue 'emails'"."""
        return Trouble(self, what)

    def join(self, part: "Trouble", problem: str) -> None:
        """A part cannot use the server."""
        with self._lock:
            begins = not self._parts
            self._parts.add(part)
            if begins:
                self._began_at, self._any_recovered = monotonic(), False
        if begins:
            facts = {"server": self._server, "problem": problem}
            logger.warning("%s is unavailable, retrying: %s", self._server, problem, extra=facts)

    def leave(self, part: "Trouble", *, recovered: bool) -> None:
        """A part can use the server again, or was closed."""
        with self._lock:
            if part not in self._parts:
                return
            self._parts.remove(part)
            self._any_recovered = self._any_recovered or recovered
            ends = self._any_recovered and not self._parts
        if ends:
            after_s = round(monotonic() - self._began_at, 3)
            facts = {"server": self._server, "after_s": after_s}
            logger.warning("%s is available again after %.1f s", self._server, after_s, extra=facts)


class Trouble:
    """The trouble that one part has with a server, from its first error to its next success.

    It is logged once at each end: with all other parts if the server is away or busy, else by
    itself.
    """

    def __init__(self, outage: Outage, what: str) -> None:
        self._outage = outage
        self._what = what
        self._pauses = Pauses(_FIRST_PAUSE_S, _LONGEST_PAUSE_S, spread=Random())  # noqa: S311
        self._away = False  # it shares in the outage
        self._failed = False  # it has an error of its own

    @property
    def is_on(self) -> bool:
        """Whether the last attempt failed."""
        return self._away or self._failed

    @property
    def is_away(self) -> bool:
        """Whether the last attempt failed because of the server's outage."""
        return self._away

    def begin(self, error: Exception) -> float:
        """Note an error; the seconds to wait before the next try, longer each time."""
        if isinstance(error, ServerError) and error.verdict is not Verdict.GIVE_UP:
            if not self._away:
                self._away = True
                self._outage.join(self, _problem(error))
        else:
            self._leave_outage(recovered=True)
            if not self._failed:
                self._failed = True
                self._log_failure(error)
        return self._pauses.next_s()

    def end(self, *, recovered: bool = True) -> None:
        """Note a success; or, with `recovered=False`, that the part was closed."""
        if not self.is_on:
            return
        self._leave_outage(recovered=recovered)
        if self._failed:
            self._failed = False
            if recovered:
                logger.warning("%s works again", self._what, extra={"part": self._what})
        self._pauses.reset()

    def _leave_outage(self, *, recovered: bool) -> None:
        if self._away:
            self._away = False
            self._outage.leave(self, recovered=recovered)

    def _log_failure(self, error: Exception) -> None:
        expected = isinstance(error, ServerError | OutboxFailed)
        logger.log(
            logging.WARNING if expected else logging.ERROR,
            "%s failed, retrying: %s",
            self._what,
            error,
            exc_info=None if expected else error,
            extra={"part": self._what, "problem": str(error)},
        )


def _problem(error: ServerError) -> str:
    if isinstance(error, ServerUnreachable | ConnectionLost):
        return error.problem  # its full text names the server again
    return str(error)
