"""A store that several schedulers share: it also knows which run is in flight, and whose it is."""

from secrets import token_hex
from typing import Final, Unpack

from msgspec import Struct

from tampu.errors import DecodeError
from tampu.scheduler.redis_guard import LeaseOptions, LeaseSettings
from tampu.scheduler.stores.store import Loaded
from tampu.server.client import CredentialCallback
from tampu.server.connect import Target
from tampu.server.lane import Lane
from tampu.server.scripts import scheduler as scripts
from tampu.server.scripts.scheduler import Completion, Decided, SharedTask, Term
from tampu.util.options import parse_options
from tampu.wire.keys import SharedTaskKeys, TaskKeys, shared_task_keys
from tampu.wire.task_state import TaskState, Waiting, decode_task_state, encode_task_state

_NOTICE_LEASES: Final = 10
"""For how many leases others can see that a task has ended. They look once in each lease."""


class RunInFlight(Struct, frozen=True):
    """A run that a scheduler has started. Its lease has `left_ms` left, or has expired."""

    at_ms: int
    catch_up: bool
    manual: bool
    token: str
    left_ms: int


class SharedTaskView(Struct, frozen=True):
    """A stored task, at an instant of the server's clock.

    Version 0: no `CoordinatedStore` has stored it yet, and `state` is that of a plain store.
    """

    version: int
    state: Loaded
    in_flight: RunInFlight | None
    now_ms: int
    ended: bool = False  # and deleted; `state` is its last one


class CoordinatedStore:
    """Keeps states on a Redis or Valkey server, for several schedulers that share their tasks.

        Scheduler(store=CoordinatedStore("redis://localhost"))  # the same on every machine

    Each occurrence runs on one of them, and at least once: if a scheduler dies during a run,
    another one takes the run over when its lease expires. No guard is needed. The options are
    `lease`, `renew_every`, `timeout` and `prefix`.
    """

    # A state replaces only the version it was decided from. A run is claimed in the same step that
    # stores its occurrence as done. Every call may be repeated. Unreachable: a `ServerError`.

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
        self._lanes = settings.make_lanes(url, credentials)

    async def open(self) -> None:
        """Count one more user. The first call of the store connects."""
        self._lanes.open()

    async def close(self) -> None:
        """Disconnect when the last user has called this."""
        await self._lanes.close()

    async def read(self, task_id: str) -> SharedTaskView:
        """The stored task, or what a `RedisStore` with the same prefix has stored."""
        found = await scripts.read_task(*await self._locate(task_id))
        return SharedTaskView(
            version=found.version,
            state=_decode(found.state),
            in_flight=_run_in_flight(found),
            now_ms=found.now_ms,
            ended=found.ended,
        )

    async def advance(self, version: int, state: TaskState) -> bool:
        """Store a state as the next version; False if the version has changed.

        A run in flight is not affected.
        """
        lane, keys = await self._locate(state.task_id)
        return await scripts.advance(
            lane, keys, _encode_decision(version, state), call_token=token_hex(16)
        )

    async def claim(self, version: int, state: TaskState, run: Waiting) -> str | None:
        """Store a state as the next version, and its run as in flight; returns the run's token.

        None if the version has changed, or if another run is in flight.
        """
        term = Term(token_hex(16), self._lease_ms)
        lane, keys = await self._locate(state.task_id)
        claimed = await scripts.claim(
            lane, keys, _encode_decision(version, state), run=run, term=term
        )
        return term.token if claimed else None

    async def reclaim(self, task_id: str, token: str) -> str | None:
        """Take over a run in flight whose lease has expired; returns its new token.

        None if the run was renewed, taken over or completed meanwhile.
        """
        term = Term(token_hex(16), self._lease_ms)
        reclaimed = await scripts.reclaim(*await self._locate(task_id), term, before=token)
        return term.token if reclaimed else None

    async def renew(self, task_id: str, token: str) -> bool:
        """Extend the lease of a run, even an expired one that nobody has taken over."""
        term = Term(token, self._lease_ms)
        return await scripts.renew_claim(*await self._locate(task_id), term)

    async def complete(self, version: int, token: str, state: TaskState) -> Completion:
        """Store a state as the next version, and end the run with this token."""
        lane, keys = await self._locate(state.task_id)
        return await scripts.complete(lane, keys, _encode_decision(version, state), token=token)

    async def forget(self, task_id: str, version: int) -> bool:
        """Delete a task that has ended, also from a plain store with the same prefix.

        False if the version has changed, or if a run is in flight. For ten leases the others can
        see that the task has ended, so that they do not start it again.
        """
        lane, keys = await self._locate(task_id)
        notice_ms = _NOTICE_LEASES * self._lease_ms
        return await scripts.forget(lane, keys, version=version, notice_ms=notice_ms)

    async def _locate(self, task_id: str) -> tuple[Lane, SharedTaskKeys]:
        keys = shared_task_keys(self._keys, task_id)
        return await self._lanes.to(keys.task), keys


def _encode_decision(version: int, state: TaskState) -> Decided:
    return Decided(version, encode_task_state(state))


def _decode(body: bytes | None) -> Loaded:
    try:
        return None if body is None else decode_task_state(body)
    except DecodeError as error:
        return error


def _run_in_flight(found: SharedTask) -> RunInFlight | None:
    if found.flight is None:
        return None
    run = found.flight.run
    return RunInFlight(
        at_ms=run.at_ms,
        catch_up=run.catch_up,
        manual=run.manual,
        token=found.flight.token,
        left_ms=found.flight.until_ms - found.now_ms,
    )
