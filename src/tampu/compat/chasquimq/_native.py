"""The low-level classes, which chasquimq has in this module.

`Producer` and `Consumer` have modules of their own. `Scheduler` and `version` are defined here.
"""

from tampu._version import __version__ as _tampu_version
from tampu.compat.chasquimq._arguments import (
    check_non_negative,
    check_type,
    check_unsigned,
    log_ignored_options,
)
from tampu.compat.chasquimq._consumer import Consumer
from tampu.compat.chasquimq._consumer import RawJob as _Job
from tampu.compat.chasquimq._lifecycle import StoppableRuns, as_future
from tampu.compat.chasquimq._producer import Producer
from tampu.compat.chasquimq._url import (
    CredentialProvider,
    credentials_from,
    require_loop,
    server_url,
)
from tampu.standalone import ScheduleFirer
from tampu.wire.names import check_name, check_queue_name

__all__ = ["Consumer", "Producer", "Scheduler", "_Job", "version"]


class Scheduler:
    """Fires the schedules of one queue, and runs no jobs."""

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
        check_non_negative("tick_interval_ms", tick_interval_ms)
        check_unsigned("batch", batch)
        check_non_negative("max_stream_len", max_stream_len)
        check_non_negative("lock_ttl_secs", lock_ttl_secs)
        log_ignored_options(
            "Scheduler",
            tick_interval_ms=tick_interval_ms,
            batch=batch,
            max_stream_len=max_stream_len,
            lock_ttl_secs=lock_ttl_secs,
        )
        require_loop(credential_provider)
        self._name, self._url = check_queue_name(queue_name), server_url(redis_url)
        if holder_id is not None:
            check_type("holder_id", holder_id, str)
        self._holder_id = check_name("holder_id", holder_id) if holder_id else None
        self._provider = credential_provider
        self._runs = StoppableRuns()

    @as_future
    async def run(self) -> None:
        """Fire schedules until `shutdown`. Of all schedulers and workers of a queue, one leads."""
        await self._runs.run(self._create_service)

    def shutdown(self) -> None:
        """Make `run` end, without waiting for it. May be called from any thread."""
        self._runs.stop()

    def _create_service(self) -> ScheduleFirer:
        credentials = credentials_from(self._provider, self._url)
        return ScheduleFirer(self._name, self._url, credentials=credentials, name=self._holder_id)


def version() -> str:
    """The version of chasquimq that this package stands in for, and tampu's version."""
    return f"1.3.0+tampu.{_tampu_version}"
