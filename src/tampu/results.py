"""Results of jobs: pushed to callers that wait for them, or read at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from tampu.errors import (
    Closed,
    DecodeError,
    JobCancelled,
    JobFailed,
    ResultTimeout,
    ServerError,
    ServerUnreachable,
)
from tampu.server.errors import TOO_SLOW
from tampu.server.lane import Lane
from tampu.server.listening import ENTRIES_A_READ, SharedParts, StreamTarget
from tampu.server.streams import RawEntry, last_id, values_of
from tampu.util.lifecycle import cancel_all, ignore_outcome
from tampu.wire.names import check_job_id
from tampu.wire.result import decode_result, error_of_failure, ids_in_notice

if TYPE_CHECKING:
    from tampu.wire.keys import QueueKeys

IDS_A_READ: Final = 500
LINGER_S: Final = 3.0
"""How long the reader keeps running when nobody waits, for callers that wait again and again."""

_SHORTEST_LIMIT_S: Final = 1.0
_LONGEST_LIMIT_S: Final = 30.0


class _StoredResult(Struct, frozen=True):
    """How a job ended, as it is stored: its result, or why it was buried."""

    result: bytes | None
    failure: bytes | None

    def value(self, job_id: str) -> object:
        """The value that the handler returned, decoded for each caller.

        Raises `JobFailed` or `JobCancelled`.
        """
        if self.result is not None:
            return decode_result(self.result)
        raise error_of_failure(job_id, self.failure or b"")

    def value_or_error(self, job_id: str) -> object:
        """As `value`, but errors are returned."""
        try:
            return self.value(job_id)
        except (JobFailed, JobCancelled, DecodeError) as error:
            return error


_Waiter = asyncio.Future[_StoredResult | Closed]


class _Waiters:
    """Futures of callers by the job that they wait for; several may wait for one job."""

    def __init__(self) -> None:
        self._by_id: dict[str, set[_Waiter]] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def among(self, job_ids: Iterable[str]) -> list[str]:
        """Those of the ids that somebody waits for, each once."""
        return list(self._by_id.keys() & set(job_ids))

    def all_ids(self) -> list[str]:
        """Every id that somebody waits for."""
        return list(self._by_id)

    def add(self, job_id: str) -> _Waiter:
        waiter: _Waiter = asyncio.get_running_loop().create_future()
        self._by_id.setdefault(job_id, set()).add(waiter)
        return waiter

    def remove(self, job_id: str, waiter: _Waiter) -> None:
        left = self._by_id[job_id]
        left.remove(waiter)
        if not left:
            del self._by_id[job_id]

    def resolve(self, job_id: str, outcome: _StoredResult | Closed) -> None:
        """Wake all callers that wait for the job; each removes its own future."""
        for waiter in self._by_id.get(job_id, ()):
            if not waiter.done():
                waiter.set_result(outcome)


class ResultReader:
    """Gives results to any number of callers, with one blocking read for all of them.

    Workers write the ids of finished jobs to the queue's notices stream. The reader follows that
    stream from before the first read of a caller's keys, so that no result is missed in between. It
    belongs to one event loop, opens its connections on first use and keeps them until `close`.
    """

    def __init__(self, parts: SharedParts, keys: QueueKeys) -> None:
        self._server = parts.server
        self._keys = keys
        self._parts = parts
        self._waiters = _Waiters()
        self._opening = asyncio.Lock()
        self._lane: Lane | None = None
        self._notices: _Notices | None = None  # while somebody waits, and a little longer
        self._next_ids: list[str] = []
        self._next_read: asyncio.Task[dict[str, _StoredResult]] | None = None
        self._needed_at = 0.0  # when somebody last waited
        self._closed = False

    async def wait(self, job_id: str, timeout_s: float) -> object:
        """Wait for the value that a job's handler returned; 0 seconds: read once.

        Raises `JobFailed` if the job was buried, `ResultTimeout` after the timeout, `DecodeError`
        for an unreadable result, and a `ServerError` if the server cannot be asked.
        """
        waiter = self._waiters.add(check_job_id(job_id))
        try:
            stored = await self._wait(job_id, waiter, timeout_s)
        finally:
            self._waiters.remove(job_id, waiter)
            self._needed_at = waiter.get_loop().time()
        if stored is None:
            raise ResultTimeout(job_id, timeout_s)
        return stored.value(job_id)

    async def get_many(self, job_ids: Sequence[str]) -> dict[str, object]:
        """The results of those jobs that have ended, in the given order.

        The value for a buried job is its `JobFailed`; for an unreadable result, the `DecodeError`.
        """
        wanted = list(dict.fromkeys(map(check_job_id, job_ids)))
        if not wanted:
            return {}
        found = await self._read_values(await self._open_lane(_LONGEST_LIMIT_S), wanted)
        return {job_id: stored.value_or_error(job_id) for job_id, stored in found.items()}

    async def get_raw(self, job_ids: Sequence[str]) -> list[bytes | None]:
        """The stored bytes of each result; None if there is none."""
        if not job_ids:
            return []
        keys = self._keys.results(map(check_job_id, job_ids))
        return await values_of(await self._open_lane(_LONGEST_LIMIT_S), keys)

    async def forget(self, job_id: str) -> None:
        """Delete a stored result, or why there is none."""
        keys = (self._keys.result(check_job_id(job_id)), self._keys.failure(job_id))
        lane = await self._open_lane(_LONGEST_LIMIT_S)
        await lane.call("DEL", *keys, repeatable=True)

    @property
    def notices_key(self) -> bytes:
        """The stream of notices that it follows."""
        return self._keys.notices

    async def close(self) -> None:
        """Disconnect; calls that still wait raise `Closed`. May be called twice."""
        self._closed = True
        for job_id in self._waiters.all_ids():
            self._waiters.resolve(job_id, Closed(self._server.name))
        async with self._opening:
            await self._stop_following()
            if self._lane is not None:
                await self._lane.close()

    # --- one caller -----------------------------------------------------------------------------

    async def _wait(self, job_id: str, waiter: _Waiter, timeout_s: float) -> _StoredResult | None:
        """How the job ended; None if it did not end in time."""
        if timeout_s <= 0:
            lane = await self._open_lane(_SHORTEST_LIMIT_S)
            found = await self._read_values(lane, [job_id], limit_s=_SHORTEST_LIMIT_S)
            return found.get(job_id)
        loop = waiter.get_loop()
        deadline = loop.time() + timeout_s
        limit_s = min(max(timeout_s, _SHORTEST_LIMIT_S), _LONGEST_LIMIT_S)
        found = await self._join_read(job_id, limit_s)
        if job_id not in found:
            await asyncio.wait([waiter], timeout=max(0.0, deadline - loop.time()))
            if waiter.done():
                return _raise_if_closed(waiter.result())
            # ChasquiMQ's workers store results without a notice, so read once more.
            with suppress(ServerError):
                found = await self._join_read(job_id, _SHORTEST_LIMIT_S)
        return found.get(job_id)

    async def _join_read(self, job_id: str, limit_s: float) -> dict[str, _StoredResult]:
        """One read for all callers that ask at about the same time."""
        if self._next_read is None:
            self._next_read = asyncio.create_task(self._read_joined(), name="tampu-results-read")
            self._next_read.add_done_callback(ignore_outcome)
        self._next_ids.append(job_id)
        read = self._next_read
        await asyncio.wait([read], timeout=limit_s)
        if not read.done():
            raise ServerUnreachable(self._server.name, TOO_SLOW)
        try:
            return read.result()
        except ServerError as error:
            raise copy(error) from None  # each caller gets its own

    async def _read_joined(self) -> dict[str, _StoredResult]:
        try:
            lane = await self._open_lane(_LONGEST_LIMIT_S, follow=True)
        finally:
            job_ids, self._next_ids, self._next_read = self._next_ids, [], None
        return await self._read_values(lane, job_ids)

    async def _read_values(
        self, lane: Lane, job_ids: Sequence[str], *, limit_s: float | None = None
    ) -> dict[str, _StoredResult]:
        """How jobs ended, for those that have."""
        found: dict[str, _StoredResult] = {}
        result_key, failure_key = self._keys.result, self._keys.failure
        for start in range(0, len(job_ids), IDS_A_READ):
            some = job_ids[start : start + IDS_A_READ]
            keys = [*map(result_key, some), *map(failure_key, some)]
            values = await values_of(lane, keys, limit_s=limit_s)
            for job_id, value, failure in zip(some, values, values[len(some) :], strict=False):
                if value is not None or failure is not None:
                    found[job_id] = _StoredResult(value, failure)
        return found

    # --- connections, and the notices -----------------------------------------------------------

    async def _open_lane(self, limit_s: float, *, follow: bool = False) -> Lane:
        """The lane for values. With `follow`, the reader sees every notice from now on."""
        try:
            # One caller opens it for all; the others wait, but no longer than their limit.
            async with asyncio.timeout(limit_s), self._opening:
                if self._closed:
                    raise Closed(self._server.name)
                if self._lane is None:
                    shared = self._parts.connections
                    self._lane = await Lane.open(self._server, self._keys.notices, shared=shared)
                if follow and self._notices is None:
                    after = await last_id(self._lane, self._keys.notices, limit_s=limit_s)
                    self._notices = _Notices(self, self._lane, after)
                    self._parts.streams.listen(self._keys.notices, self._notices)
                return self._lane
        except TimeoutError:
            raise ServerUnreachable(self._server.name, TOO_SLOW) from None

    async def stop_lingering(self) -> bool:
        """Stop following if nobody has waited for a while; False if somebody does."""
        async with self._opening:
            idle_s = asyncio.get_running_loop().time() - self._needed_at
            if self._waiters or idle_s < LINGER_S:
                return False
            await self._stop_following()
            return True

    async def _stop_following(self) -> None:
        notices, self._notices = self._notices, None
        if notices is not None:
            await self._parts.streams.ignore(self._keys.notices)
            await notices.close()

    def ids_named_in(self, entries: Sequence[RawEntry]) -> list[str]:
        """The waiting ids that notices name; all of them if a notice is missing or unreadable."""
        if len(entries) >= ENTRIES_A_READ:
            return self._waiters.all_ids()
        try:
            named = [job_id for _, flat in entries for job_id in ids_in_notice(flat or ())]
        except DecodeError:
            return self._waiters.all_ids()
        return self._waiters.among(named)

    async def wake(self, lane: Lane, job_ids: Sequence[str] | None = None) -> None:
        """Read results for the callers that wait for these jobs, or for all who wait."""
        job_ids = self._waiters.all_ids() if job_ids is None else job_ids
        for job_id, stored in (await self._read_values(lane, job_ids)).items():
            self._waiters.resolve(job_id, stored)


class _Notices(StreamTarget):
    """Follows the notices of a queue, and wakes the callers that they name."""

    def __init__(self, reader: ResultReader, lane: Lane, after: bytes) -> None:
        self.after = after
        self._reader = reader
        self._lane = lane
        self._waking: set[asyncio.Task[None]] = set()
        self._lingering = asyncio.create_task(self._linger(), name="tampu-results")

    def take(self, entries: list[RawEntry]) -> None:
        """Read the results of jobs that somebody waits for."""
        if named := self._reader.ids_named_in(entries):
            self._wake(named)

    async def bridge_gap(self, lane: Lane) -> None:
        """Notices may have been missed, or their stream was lost: read all results."""
        self.after = await last_id(lane, self._reader.notices_key)
        await self._reader.wake(lane)

    async def close(self) -> None:
        """End what runs for it, but not who calls this."""
        await cancel_all({*self._waking, self._lingering} - {asyncio.current_task()})

    def _wake(self, named: Sequence[str]) -> None:
        waking = asyncio.create_task(self._reader.wake(self._lane, named), name="tampu-results")
        self._waking.add(waking)
        waking.add_done_callback(self._waking.discard)
        waking.add_done_callback(ignore_outcome)

    async def _linger(self) -> None:
        while True:
            await asyncio.sleep(LINGER_S)
            if await self._reader.stop_lingering():
                return


def _raise_if_closed(outcome: _StoredResult | Closed) -> _StoredResult:
    if isinstance(outcome, Closed):
        raise outcome
    return outcome
