"""Fires schedules when they are due."""

import logging
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Final

from tampu.errors import DecodeError, EncodeError
from tampu.ids import new_ids
from tampu.metrics.facts import Firings
from tampu.metrics.sink import Teller
from tampu.repeat import Repeat, open_repeat
from tampu.server.lane import Lane
from tampu.server.repeats import Armed, Due, Fired, Firing, RawFields, due, fields_of_specs, fire
from tampu.services.firing import BYTES_A_CALL, Standing, firing_of
from tampu.services.led import LedService
from tampu.wire.fields import show_text
from tampu.wire.keys import QueueKeys
from tampu.wire.lock import LockHolder
from tampu.wire.repeat_extras import HELD, OWN, SPEC, decode_count

logger = logging.getLogger(__name__)

_BATCH: Final = 256
_FIRES_A_CALL: Final = 1000
_LOOK_AGAIN_S: Final = 1.0  # a peer that stores a schedule does not ring
_HELD_S: Final = 0.1  # until an instant that waits is looked at again
_UNREADABLE_S: Final = 60.0
_MOST_KNOWN: Final = 20_000


class Repeater(LedService):
    """Fires while it leads: each instant once, by the server's clock, never early."""

    name = "repeater"

    def __init__(
        self,
        lane: Lane,
        keys: QueueKeys,
        *,
        holder: LockHolder,
        events_max_len: int,
        teller: Teller,
    ) -> None:
        super().__init__(lane, keys, holder=holder, events_max_len=events_max_len, teller=teller)
        self._skip = 0  # so many of those that are due rest, as far as we have looked
        self._resting: dict[Armed, float] = {}  # left where they are, and until when
        self._reported: set[bytes] = set()
        self._known: dict[tuple[bytes | None, bytes | None], Repeat] = {}

    @staticmethod
    def lock_of(keys: QueueKeys) -> bytes:
        """The key that peers use too."""
        return keys.scheduler_lock

    @staticmethod
    def bell_of(keys: QueueKeys) -> bytes:
        """Rung by who stores or resumes a schedule."""
        return keys.schedule_bell

    async def work(self) -> float:
        """Fire one batch of what is due; the wait until the next schedule is."""
        self._wake_rested()
        found = await due(self._lane, self._keys, skip=self._skip, limit=_BATCH)
        ready = [armed for armed in found.schedules if armed not in self._resting]
        if not ready and len(found.schedules) == _BATCH:
            self._skip += _BATCH
            return 0.0
        self._skip = 0
        if not ready:
            return self._wait_s(found)
        await self._attend(ready, found.now_ms)
        return 0.0  # look from the start once more: what has fired may be due again already

    async def _attend(self, ready: Sequence[Armed], now_ms: int) -> None:
        for part in _parts(await self._decided(ready, now_ms)):
            results = await fire(
                self._lane,
                self._keys,
                holder=self._leader.holder,
                events_max_len=self._events_max_len,
                firings=part,
            )
            if results is None:
                self._leader.lost()
                return
            self._note(part, results)

    async def _decided(self, ready: Sequence[Armed], now_ms: int) -> list[Firing]:
        keys = [armed.key for armed in ready]
        stored = await fields_of_specs(self._lane, self._keys, keys, fields=(SPEC, OWN, HELD))
        firings = []
        ids = _new_ids(now_ms)
        for armed, fields in zip(ready, stored, strict=True):
            try:
                standing = self._standing(armed, fields)
                if standing is None:
                    firings.append(Firing(armed=armed))
                else:
                    firings.append(firing_of(standing, armed, now_ms, ids=ids))
            except (DecodeError, EncodeError) as problem:
                self._set_aside(armed, problem)
        return firings

    def _standing(self, armed: Armed, fields: RawFields | None) -> Standing | None:
        """What is due; None if it was removed a moment ago, or only its place is left."""
        if fields is None:
            raise DecodeError("repeat spec", "its key holds something else")
        due_ms = armed.due_ms
        if due_ms is None:
            raise DecodeError("repeat", "what it is armed for is no instant")
        spec, own, held = fields
        if spec is None:
            return None
        held_ms = None if held is None else decode_count(held)
        return Standing(self._opened(spec, own), due_ms, held_ms)

    def _opened(self, spec: bytes, own: bytes | None) -> Repeat:
        """Opened once: parsing a rule takes far longer than asking it."""
        repeat = self._known.get((spec, own))
        if repeat is None:
            repeat = open_repeat(spec, own)
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[spec, own] = repeat
        return repeat

    def _note(self, firings: Sequence[Firing], results: Sequence[Fired]) -> None:
        """Count what was done, and let rest what was not."""
        total = [0] * 5
        for firing, result in zip(firings, results, strict=True):
            if result.held or result.changed:
                # One that was changed is armed for another instant, or not there any more.
                self._resting[firing.armed] = monotonic() + _HELD_S
                continue
            overlapped = firing.overlapped + result.met
            counts = (result.fired, firing.missed, overlapped, firing.outside, result.past)
            total = [sum(pair) for pair in zip(total, counts, strict=True)]
        self._teller.tell(Firings(*total))

    def _set_aside(self, armed: Armed, problem: Exception) -> None:
        """Leave what cannot be read where it is; told once."""
        self._resting[armed] = monotonic() + _UNREADABLE_S
        if armed.key not in self._reported:
            self._reported.add(armed.key)
            facts = {"key": show_text(armed.key), "problem": str(problem)}
            logger.warning("a schedule cannot be read", extra=facts)

    def _wake_rested(self) -> None:
        now = monotonic()
        for armed in [armed for armed, until in self._resting.items() if until <= now]:
            del self._resting[armed]

    def _wait_s(self, found: Due) -> float:
        waits = [_LOOK_AGAIN_S]
        if found.next_in_us is not None:
            waits.append(found.next_in_us / 1_000_000)
        if self._resting:
            waits.append(max(0.0, min(self._resting.values()) - monotonic()))
        return min(waits)


def _new_ids(now_ms: int) -> Iterator[str]:
    """Ids without end; made by the batch: alone each takes far longer."""
    while True:
        yield from new_ids(_BATCH, now_ms)


def _parts(firings: Sequence[Firing]) -> list[list[Firing]]:
    """In calls of about so many jobs and bytes, so that none takes the server for long."""
    parts: list[list[Firing]] = []
    jobs = size = 0
    for firing in firings:
        more, heavier = len(firing.fires), sum(len(new.body) for new in firing.fires)
        if not parts or jobs + more > _FIRES_A_CALL or size + heavier > BYTES_A_CALL:
            parts.append([])
            jobs = size = 0
        parts[-1].append(firing)
        jobs, size = jobs + more, size + heavier
    return parts
