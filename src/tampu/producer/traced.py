"""Adds that telemetry is told about. A queue without telemetry adds its jobs without this."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from tampu.job import Job
from tampu.metrics.telemetry import Endpoint, OpenSend, SafeTelemetry, Sending, Telemetries
from tampu.producer.connection import QueueConnection
from tampu.producer.request import Request, fits, with_headers
from tampu.wire.extras import Extras

AddOne: TypeAlias = Callable[[Request], Awaitable[Job[Any]]]
AddMany: TypeAlias = Callable[[list[Request]], Awaitable[list[Job[Any]]]]


class TracedAdds:
    """Tells telemetry about the adds of a queue, and gives its headers to the jobs.

    It goes round the whole of an add, with every call to the server that it takes.
    """

    def __init__(self, telemetry: SafeTelemetry, queue: str) -> None:
        self._telemetry = telemetry
        self._queue = queue

    async def add_one(self, request: Request, connection: QueueConnection, add: AddOne) -> Job[Any]:
        """Add one job with `add`."""
        span = self._start([request], connection, is_batch=False)
        try:
            job = await add(with_headers(request, span.headers))
        except BaseException as error:
            span.end((), error)
            raise
        span.end([job])
        return job

    async def add_many(
        self, requests: list[Request], connection: QueueConnection, add: AddMany
    ) -> list[Job[Any]]:
        """Add many jobs with `add`, which may make several calls."""
        span = self._start(requests, connection, is_batch=True)
        try:
            jobs = await add([with_headers(request, span.headers) for request in requests])
        except BaseException as error:
            span.end((), error)
            raise
        span.end(jobs)
        return jobs

    def headers(self) -> dict[str, str]:
        """What jobs carry that a schedule adds later; empty if it is too large to be stored."""
        headers = self._telemetry.headers()
        return headers if fits(Extras(headers=headers)) else {}

    def _start(
        self, requests: Sequence[Request], connection: QueueConnection, *, is_batch: bool
    ) -> OpenSend:
        names = {request.name for request in requests}
        producer_id, address = connection.batcher.producer_id, connection.lane.address
        return self._telemetry.start_send(
            Sending(
                endpoint=Endpoint(self._queue, producer_id, *address),
                count=len(requests),
                name=names.pop() if len(names) == 1 else None,
                body_bytes=sum(len(request.payload) for request in requests),
                is_batch=is_batch,
            )
        )


def make_traced(telemetry: Telemetries | None, queue: str) -> TracedAdds | None:
    """What tells about the adds of a queue; None without telemetry."""
    return None if telemetry is None else TracedAdds(SafeTelemetry(telemetry), queue)
