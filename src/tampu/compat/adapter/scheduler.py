"""The low-level scheduler: fires schedules and runs nothing."""

import asyncio

from tampu.compat.adapter.address import CredentialProvider, credentials_of, url_of
from tampu.compat.adapter.integers import non_negative, unsigned, unused
from tampu.compat.adapter.kinds import instance
from tampu.compat.adapter.shift import Shift
from tampu.compat.adapter.started import started
from tampu.standalone import ScheduleFirer
from tampu.wire.keys import check_name, check_queue_name


class Scheduler:
    """Fires the schedules of one queue, from `run` to `shutdown`."""

    def __init__(
        self,
        redis_url: str,
        queue_name: str,
        *,
        tick_interval_ms: int | None = None,
        batch: int | None = None,
        max_stream_len: int | None = None,
        lock_ttl_secs: int | None = None,
        holder_id: str | None = None,
        credential_provider: CredentialProvider | None = None,
    ) -> None:
        non_negative("tick_interval_ms", tick_interval_ms)
        unsigned("batch", batch)
        non_negative("max_stream_len", max_stream_len)
        non_negative("lock_ttl_secs", lock_ttl_secs)
        unused(
            "Scheduler",
            tick_interval_ms=tick_interval_ms,
            batch=batch,
            max_stream_len=max_stream_len,
            lock_ttl_secs=lock_ttl_secs,
        )
        if credential_provider is not None:
            asyncio.get_running_loop()  # theirs needs one here
        self._name, self._url = check_queue_name(queue_name), url_of(redis_url)
        if holder_id is not None:
            instance("holder_id", holder_id, str)
        self._holder_id = check_name("holder_id", holder_id) if holder_id else None
        self._provider = credential_provider
        self._shift = Shift()

    @started
    async def run(self) -> None:
        """Fire until `shutdown`, from the call on; of all that fire on a queue, one leads."""
        await self._shift.run(self._repeater)

    def shutdown(self) -> None:
        """Have `run` end, and do not wait for it; from any thread."""
        self._shift.end()

    def _repeater(self) -> ScheduleFirer:
        credentials = credentials_of(self._provider, self._url)
        return ScheduleFirer(self._name, self._url, credentials=credentials, name=self._holder_id)
