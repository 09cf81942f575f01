"""Tasks that several schedulers share: each occurrence is run at least once, whoever dies."""

from collections.abc import Callable
from secrets import token_hex
from typing import Final, TypeAlias, Unpack

from msgspec import Struct

from tampu.errors import DecodeError
from tampu.scheduler.events import StoreEvent
from tampu.scheduler.guard import LeaseOptions, LeaseSettings
from tampu.scheduler.stores.store import Loaded
from tampu.server.client import CredentialCallback
from tampu.server.connect import Target
from tampu.server.lane import Lane
from tampu.server.scripts import scheduler as coordination
from tampu.server.scripts.scheduler import Completion, Decided, SharedTask, Term
from tampu.util.options import parse_options
from tampu.wire.keys import SharedTaskKeys, TaskKeys, shared_task_keys
from tampu.wire.task_state import TaskState, Waiting, decode_task_state, encode_task_state

_Place: TypeAlias = tuple[Lane, SharedTaskKeys]
_NOTICE_LEASES: Final = 10  # each who shares a task looks at it within one


class Inflight(Struct, frozen=True):
    """A run that somebody has begun; its lease lasts `left_ms` more, or has run out."""

    at_ms: int
    catch_up: bool
    manual: bool
    token: str
    left_ms: int


class Seen(Struct, frozen=True):
    """A task at an instant of the server's clock; version 0 says that nobody coordinated it yet."""

    version: int
    state: Loaded
    inflight: Inflight | None
    now_ms: int
    ended: bool = False  # and deleted; `state` is its last one


class CoordinatedStore:
    """Keeps states by version, and which run of a task is in flight and whose it is.

    A state is only stored in place of the version that it was decided from. A run is claimed in
    the step that stores it as behind us; if its owner dies, another takes it over when its lease
    has run out. One that cannot be reached raises a `ServerError`, and the scheduler asks again:
    each call may be repeated. Options are those of `LeaseSettings`.
    """

    def __init__(
        self,
        url: Target = None,
        *,
        credentials: CredentialCallback | None = None,
        **options: Unpack[LeaseOptions],
    ) -> None:
        settings = parse_options(LeaseSettings, "CoordinatedStore", options)
        self.lease_s = settings.lease_ms / 1000
        self.renew_every_s = settings.renew_every_s
        self._lease_ms = settings.lease_ms
        self._keys = TaskKeys(settings.prefix)
        self._lanes = settings.lanes(url, credentials)

    async def open(self) -> None:
        """One more who uses it; it connects when it is first asked."""
        self._lanes.open()

    async def close(self) -> None:
        """One less; the last one disconnects."""
        await self._lanes.close()

    def listen(self, tell: Callable[[StoreEvent], None]) -> None:
        """Nothing to tell: it has no mirror to go on from, so who asks learns of every trouble."""
        del tell

    async def look(self, task_id: str) -> Seen:
        """What is stored of a task, or what a plain store of the same prefix has left of it."""
        found = await coordination.read_task(*await self._place(task_id))
        return Seen(
            version=found.version,
            state=_loaded(found.state),
            inflight=_inflight(found),
            now_ms=found.now_ms,
            ended=found.ended,
        )

    async def advance(self, version: int, state: TaskState) -> bool:
        """Store a state as the next version; False if there is another version by now.

        A run in flight stays as it is.
        """
        place = await self._place(state.task_id)
        return await coordination.advance(
            *place, _decided(version, state), call_token=token_hex(16)
        )

    async def claim(self, version: int, state: TaskState, run: Waiting) -> str | None:
        """Store a state as the next version, and that its run has begun; the run's token.

        None if there is another version by now, or a run in flight.
        """
        term = self._term(token_hex(16))
        place = await self._place(state.task_id)
        claimed = await coordination.claim(*place, _decided(version, state), run=run, term=term)
        return term.token if claimed else None

    async def reclaim(self, task_id: str, token: str) -> str | None:
        """Take over a run in flight whose lease has run out; its new token.

        None if it has been renewed or taken over meanwhile, or is not in flight any more.
        """
        term = self._term(token_hex(16))
        place = await self._place(task_id)
        reclaimed = await coordination.reclaim(*place, term, before=token)
        return term.token if reclaimed else None

    async def renew(self, task_id: str, token: str) -> bool:
        """Keep a run for another while, also if nobody took it over since its lease ran out."""
        return await coordination.renew_claim(*await self._place(task_id), self._term(token))

    async def complete(self, version: int, token: str, state: TaskState) -> Completion:
        """Store a state as the next version, the run of this token being over."""
        place = await self._place(state.task_id)
        return await coordination.complete(*place, _decided(version, state), token=token)

    async def forget(self, task_id: str, version: int) -> bool:
        """Delete a task that has ended, and what a plain store has left of it; True if that is so.

        False if there is another version by now, or a run in flight. That it has ended can be seen
        for some leases' time, so that those who share it do not begin it anew.
        """
        place = await self._place(task_id)
        notice_ms = _NOTICE_LEASES * self._lease_ms
        return await coordination.forget(*place, version=version, notice_ms=notice_ms)

    async def _place(self, task_id: str) -> _Place:
        keys = shared_task_keys(self._keys, task_id)
        return await self._lanes.to(keys.course), keys

    def _term(self, token: str) -> Term:
        return Term(token, self._lease_ms)


def _decided(version: int, state: TaskState) -> Decided:
    return Decided(version, encode_task_state(state))


def _loaded(body: bytes | None) -> Loaded:
    try:
        return None if body is None else decode_task_state(body)
    except DecodeError as error:
        return error


def _inflight(found: SharedTask) -> Inflight | None:
    if found.flight is None:
        return None
    run = found.flight.run
    return Inflight(
        at_ms=run.at_ms,
        catch_up=run.catch_up,
        manual=run.manual,
        token=found.flight.token,
        left_ms=found.flight.until_ms - found.now_ms,
    )
