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
    """Keeps each state in its own key on a Redis or Valkey server.

    `url` and `credentials` are those of a `Queue`. A call without an answer within `timeout` raises
    a `ServerError`. With the default prefix, states of cloudiful-scheduler are read too; they are
    saved under our own keys only.
    """

    def __init__(
        self,
        url: Target = None,
        *,
        prefix: str = DEFAULT_TASK_PREFIX,
        credentials: CredentialCallback | None = None,
        timeout: Duration = "2s",
    ) -> None:
        timeout_s = to_positive_ms("timeout", timeout) / 1000
        self._keys = TaskKeys(prefix)
        self._lanes = Lanes.within(timeout_s, url, credentials)

    async def open(self) -> None:
        """Count one more user. The first call of the store connects."""
        self._lanes.open()

    async def close(self) -> None:
        """Disconnect when the last user has called this."""
        await self._lanes.close()

    async def load(self, task_ids: Sequence[str]) -> list[Loaded]:
        """The stored state of each task, in order: ours, or else that of cloudiful-scheduler."""
        bodies = await fetch(self._lanes, [self._keys.state(task_id) for task_id in task_ids])
        found: list[Loaded] = [
            try_decode(body, task_id) if isinstance(body, bytes) else body
            for task_id, body in zip(task_ids, bodies, strict=True)
        ]
        for prefix in self._keys.peer_prefixes:
            await self._load_missing(prefix, task_ids, found)
        return found

    async def save(self, states: Sequence[TaskState]) -> None:
        """Replace the stored states; if this raises, any of them may have been replaced."""
        keys = [self._keys.state(state.task_id) for state in states]
        await put(self._lanes, keys, [encode_task_state(state) for state in states])

    async def delete(self, task_ids: Sequence[str]) -> None:
        """Delete the stored states, ours and those of cloudiful-scheduler."""
        # Theirs first: if this fails half way, an older state must not be what is left.
        peer_keys = [key for task_id in task_ids for key in self._keys.peer_states(task_id)]
        await drop(self._lanes, peer_keys)
        await drop(self._lanes, [self._keys.state(task_id) for task_id in task_ids])

    async def _load_missing(
        self, prefix: bytes, task_ids: Sequence[str], found: list[Loaded]
    ) -> None:
        """Fill in states of cloudiful-scheduler where nothing was found."""
        missing = [number for number, state in enumerate(found) if state is None]
        bodies = await fetch(self._lanes, [prefix + task_ids[n].encode() for n in missing])
        for number, body in zip(missing, bodies, strict=True):
            if isinstance(body, bytes):
                found[number] = try_decode(body, task_ids[number], decode=decode_peer_state)
            else:
                found[number] = body
