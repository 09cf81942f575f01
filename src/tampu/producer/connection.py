"""What a queue holds while it is connected."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Self

from tampu.errors import CommandRefused, OptionError, TampuError
from tampu.events import EventWriter
from tampu.job import Host
from tampu.producer.batcher import Batcher
from tampu.producer.options import QueueSettings
from tampu.results import ResultReader
from tampu.server.gates import read_limits
from tampu.server.lane import Lane, LaneOptions
from tampu.server.listening import SharedParts
from tampu.server.streams import Copies, probe_copies
from tampu.streaming.reader import OutputReader
from tampu.util.lifecycle import Shared, cancel_all
from tampu.wire.keys import QueueKeys
from tampu.wire.lines import parse_definition

logger = logging.getLogger(__name__)


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
            limits = LimitComparison(lane, keys)
            stack.push_async_callback(limits.close)
            batcher = Batcher(
                lane, keys, host=host, rules=rules, events=events, on_limits=limits.note
            )
            stack.push_async_callback(batcher.close)
            loop = asyncio.get_running_loop()
            return cls(loop, lane, batcher, results, outputs, events, stack.pop_all())

    async def close(self) -> None:
        """Let adds that have begun finish, then disconnect."""
        await self._stack.aclose()


class LimitComparison:
    """Warns once of each limit of a producer's jobs that the queue defines differently.

    The first definition holds, until a worker declares those of its app or somebody changes it.
    """

    def __init__(self, lane: Lane, keys: QueueKeys) -> None:
        self._lane = lane
        self._keys = keys
        self._known = set[bytes]()
        self._running = set[asyncio.Task[None]]()

    def note(self, flat: Sequence[bytes]) -> None:
        """Jobs were added with these limits: names and definitions in turns."""
        new = {
            name: text
            for name, text in zip(flat[::2], flat[1::2], strict=True)
            if text and name not in self._known
        }
        if new:
            self._known |= new.keys()
            task = asyncio.create_task(self._compare(new), name="tampu-limits")
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _compare(self, ours: dict[bytes, bytes]) -> None:
        try:
            stored = await read_limits(self._lane, self._keys)
        except TampuError:
            self._known -= ours.keys()  # it is only a warning: the next jobs are compared again
            return
        for raw_name, raw_text in ours.items():
            name, text = raw_name.decode(), raw_text.decode()
            declared = stored.get(f"={name}", text)
            if declared != text:
                kept, ignored = (parse_definition(each).to_sentence() for each in (declared, text))
                facts = {"limit": name, "queue": self._keys.name, "kept": kept, "ignored": ignored}
                logger.warning(
                    "limit %s of queue %s is %s: this producer says %s, which is ignored",
                    name,
                    self._keys.name,
                    kept,
                    ignored,
                    extra=facts,
                )

    async def close(self) -> None:
        """Compare nothing more."""
        await cancel_all(self._running)


async def _check_durability(lane: Lane, copies: Copies) -> None:
    try:
        await probe_copies(lane, copies)
    except CommandRefused as refusal:
        problem = f"not supported by {lane.server.name}, which says: {refusal.problem}"
        raise OptionError("durability", copies.value, problem) from refusal
