"""What tests of server-sent events share."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, NamedTuple

from tampu import INJECTED, App, Job
from tampu.web import sse


class Sent(NamedTuple):
    """A server-sent event as a client has it."""

    kind: str
    data: Any
    id: str | None


def parse(body: bytes) -> list[Sent]:
    """The events of a body; comments are left out."""
    found = []
    for block in body.decode().split("\n\n"):
        lines = [line for line in block.splitlines() if not line.startswith(":")]
        fields = dict(line.split(": ", 1) for line in lines)
        if fields:
            event_id, kind = fields.get("id"), fields.get("event", "message")
            found.append(Sent(kind, json.loads(fields["data"]), event_id))
    return found


async def sent(job: Job[Any], after: str | None = None, **options: Any) -> list[Sent]:  # noqa: ANN401
    """All that a client gets up to the end of a job."""
    async with asyncio.timeout(60), aclosing(sse(job, after=after, **options)) as body:
        return parse(b"".join([part async for part in body]))


async def next_sent(body: AsyncGenerator[bytes]) -> list[Sent]:
    """The next events, as soon as there are any."""
    async with asyncio.timeout(60):
        while not (found := parse(await anext(body))):
            pass
        return found


def declare_report(app: App) -> Any:  # noqa: ANN401 - a task
    @app.task(attempts=1)
    async def report(year: int, job: Job = INJECTED) -> dict[str, int]:
        for percent in (25, 50, 75, 100):
            job.progress(percent)
        return {"year": year}

    return report
