"""What a queue holds while it is connected."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Self

from tampu.errors import CommandRefused, OptionError
from tampu.events import EventWriter
from tampu.job import Host
from tampu.producer.batcher import Batcher
from tampu.producer.options import QueueSettings
from tampu.results import ResultReader
from tampu.server.lane import Lane, LaneOptions
from tampu.server.listening import SharedParts
from tampu.server.streams import Copies, probe_copies
from tampu.streaming.reader import OutputReader
from tampu.util.lifecycle import Shared
from tampu.wire.keys import QueueKeys


@dataclass(frozen=True, slots=True)
class QueueConnection:
    """The lane of a queue and all that works over it; belongs to the event loop that opened it."""

    loop: asyncio.AbstractEventLoop
    lane: Lane
    batcher: Batcher
    results: ResultReader
    outputs: OutputReader
    events: EventWriter | None  # None if the queue writes no events
    _stack: AsyncExitStack

    @classmethod
    async def open(
        cls,
        keys: QueueKeys,
        settings: QueueSettings,
        *,
        host: Host,
        shared: Shared[SharedParts],
    ) -> Self:
        """Connect; raises a `ServerError`, or `OptionError` for a durability the server lacks."""
        rules = settings.call_rules
        async with AsyncExitStack() as stack:
            parts = await shared.acquire()
            stack.push_async_callback(shared.release)
            options = LaneOptions(limit_s=rules.limit_s)
            lane = await Lane.open(
                parts.server, keys.stream, options=options, shared=parts.connections
            )
            await stack.enter_async_context(lane)
            if rules.copies is not None:
                await _check_durability(lane, rules.copies)
            results = ResultReader(parts, keys)
            stack.push_async_callback(results.close)
            outputs = OutputReader(parts, lane, keys)
            stack.push_async_callback(outputs.close)
            events = EventWriter(lane, keys.events) if settings.events else None
            if events is not None:
                stack.push_async_callback(events.close)
            batcher = Batcher(lane, keys, host=host, rules=rules, events=events)
            stack.push_async_callback(batcher.close)
            loop = asyncio.get_running_loop()
            return cls(loop, lane, batcher, results, outputs, events, stack.pop_all())

    async def close(self) -> None:
        """Let adds that have begun finish, then disconnect."""
        await self._stack.aclose()


async def _check_durability(lane: Lane, copies: Copies) -> None:
    try:
        await probe_copies(lane, copies)
    except CommandRefused as refusal:
        problem = f"not supported by {lane.server.name}, which says: {refusal.problem}"
        raise OptionError("durability", copies.value, problem) from refusal
