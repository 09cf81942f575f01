"""A store on a Redis or Valkey server."""

from collections.abc import Sequence

from tampu.scheduler.stores.store import Loaded, Store
from tampu.server.client import CredentialCallback
from tampu.server.connect import Target
from tampu.server.lanes import Lanes
from tampu.server.scripts.scheduler import drop, fetch, put
from tampu.util.clock import Duration, to_positive_ms
from tampu.wire.keys import DEFAULT_TASK_PREFIX, TaskKeys
from tampu.wire.task_state import TaskState, decode_peer_state, encode_task_state, try_decode


class RedisStore(Store):
    """Keeps each state in a key of its own, for all who use the same server and prefix.

    `url` and `credentials` are as a `Queue` takes them. A call that has no answer by `timeout`
    raises a `ServerError`. With the default prefix, states that cloudiful-scheduler wrote are
    found too; they are written under our own key only.
    """

    def __init__(
        self,
        url: Target = None,
        *,
        prefix: str = DEFAULT_TASK_PREFIX,
        credentials: CredentialCallback | None = None,
        timeout: Duration = "2s",
    ) -> None:
        limit_s = to_positive_ms("timeout", timeout) / 1000
        self._keys = TaskKeys(prefix)
        self._lanes = Lanes.within(limit_s, url, credentials)

    async def open(self) -> None:
        """One more who uses it; the server is reached when it is first asked."""
        self._lanes.open()

    async def close(self) -> None:
        """Disconnect, once the last scheduler that uses it has closed it."""
        await self._lanes.close()

    async def load(self, task_ids: Sequence[str]) -> list[Loaded]:
        """What is stored of each task, by us or else by a peer."""
        bodies = await fetch(self._lanes, [self._keys.state(task_id) for task_id in task_ids])
        found: list[Loaded] = [
            try_decode(body, task_id) if isinstance(body, bytes) else body
            for task_id, body in zip(task_ids, bodies, strict=True)
        ]
        for prefix in self._keys.peer_prefixes:
            await self._look_at_peers(prefix, task_ids, found)
        return found

    async def save(self, states: Sequence[TaskState]) -> None:
        """Keep these in place of what was there; all of them or, if it fails, any of them."""
        keys = [self._keys.state(state.task_id) for state in states]
        await put(self._lanes, keys, [encode_task_state(state) for state in states])

    async def delete(self, task_ids: Sequence[str]) -> None:
        """Forget these, and what a peer knew of them."""
        # The peer's first: if this fails half way, what is left must not be older than what went.
        peers = [key for task_id in task_ids for key in self._keys.peer_states(task_id)]
        await drop(self._lanes, peers)
        await drop(self._lanes, [self._keys.state(task_id) for task_id in task_ids])

    async def _look_at_peers(
        self, prefix: bytes, task_ids: Sequence[str], found: list[Loaded]
    ) -> None:
        """Fill in what a peer left under one prefix, where nothing has been found yet."""
        missing = [number for number, state in enumerate(found) if state is None]
        bodies = await fetch(self._lanes, [prefix + task_ids[n].encode() for n in missing])
        for number, body in zip(missing, bodies, strict=True):
            if isinstance(body, bytes):
                found[number] = try_decode(body, task_ids[number], decode=decode_peer_state)
            else:
                found[number] = body
