"""What becomes of a job whose id or unique key is taken: the job that is there decides."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from tampu.admin.found import JobFinder
from tampu.errors import JobExists, ServerBusy
from tampu.job import Job
from tampu.server.scripts.control import free_unique
from tampu.server.streams import values_of

if TYPE_CHECKING:
    from tampu.admin.control import JobControl
    from tampu.admin.found import FoundJob
    from tampu.producer.connection import QueueConnection
    from tampu.producer.request import Request, UniqueRequest
    from tampu.wire.keys import QueueKeys

_TRIES: Final = 10


class Conflicts:
    """Resolves the conflicts of one queue. `add` adds one job again."""

    def __init__(
        self,
        keys: QueueKeys,
        connect: Callable[[], Awaitable[QueueConnection]],
        *,
        control: JobControl,
        add: Callable[[Request], Awaitable[Job[Any]]],
    ) -> None:
        self._keys = keys
        self._connect = connect
        self._control = control
        self._add = add

    async def resolve(self, request: Request, refused: Job[Any]) -> Job[Any]:
        """The job that counts: the one that is there, or the new one in its place.

        Raises `JobExists` if the request asks for that.
        """
        for _ in range(_TRIES):
            existing = await self._find_existing(request, refused)
            if existing is not None:
                return existing
            refused = await self._add(request)
            if not refused.duplicate:
                return refused
        lane = (await self._connect()).lane
        problem = "other programs keep adding jobs with the same unique key"
        raise ServerBusy(lane.server.name, "CHANGED", problem)

    async def resolve_repeated(self, request: Request, refused: Job[Any]) -> Job[Any]:
        """As `resolve`, for a job that may have been added before: then it is the one that counts.

        The answer has the same id if so. Never raises `JobExists`.
        """
        if request.unique is None or request.unique.on_conflict != "replace":
            return refused
        if request.job_id is not None and await self._is_taken(request.job_id):
            return refused
        return await self.resolve(request, refused)

    async def _find_existing(self, request: Request, refused: Job[Any]) -> Job[Any] | None:
        """The job that is there; None if it makes room, so that the new one can be added."""
        lane, unique = (await self._connect()).lane, request.unique
        finder = JobFinder(lane, self._keys)
        holder = None if unique is None else await self._holder(unique)
        if unique is None or holder is None:
            if request.job_id is None or not await self._is_taken(request.job_id):
                return None  # what it needs has been freed meanwhile
            found = (await finder.find([request.job_id])).get(request.job_id)
            return _duplicate(refused, request.job_id, found)
        found = await _find_for_sure(finder, holder)
        if found is None and finder.searched_all and not unique.is_timed:
            # A peer has ended the job, or it ended between the two calls.
            await free_unique(lane, [self._keys.unique(unique.key)], [holder])
            return None
        if unique.on_conflict == "raise":
            raise JobExists(holder, unique.key)
        replaced = found if unique.on_conflict == "replace" else None
        if replaced is not None and await self._control.remove(replaced):
            return None
        return _duplicate(refused, holder, found)

    async def _is_taken(self, job_id: str) -> bool:
        """Whether an id is taken; it may be, but its job asked for a unique key too."""
        lane = (await self._connect()).lane
        return await values_of(lane, [self._keys.marker(job_id)]) != [None]

    async def _holder(self, unique: UniqueRequest) -> str | None:
        """The job that has a unique key."""
        lane = (await self._connect()).lane
        (value,) = await values_of(lane, [self._keys.unique(unique.key)])
        return None if value is None else value.decode()


async def _find_for_sure(finder: JobFinder, job_id: str) -> FoundJob | None:
    """A job, even if it changes its place while it is searched for the first time."""
    for _ in range(2):
        found = (await finder.find([job_id])).get(job_id)
        if found is not None:
            return found
    return None


def _duplicate(refused: Job[Any], job_id: str, found: FoundJob | None) -> Job[Any]:
    """The job that is there, for the producer of one that was not added."""
    if found is None:  # it has ended: its data is not kept
        return Job(job_id, refused.name, None, 0, 0, refused.host, duplicate=True)
    info = found.info(found.delayed_state)
    created_ms = found.envelope.created_at_ms
    return Job(
        job_id, found.name, info.data, 0, created_ms, refused.host, found.extras, duplicate=True
    )
