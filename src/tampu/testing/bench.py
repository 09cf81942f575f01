"""The bench: runs the jobs of an app one at a time, on one event loop, and moves the time.

It is made of a worker's parts. What it leaves out is what needs time: leases, reading ahead, slots
that run side by side, and services that wait until something is due.
"""

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from time import perf_counter_ns
from typing import Final, Self

import msgspec

from tampu.consumer.intake import BuryEntry, Delivery
from tampu.consumer.options import WorkerSettings
from tampu.consumer.settle import settle
from tampu.errors import TampuError
from tampu.outcome import Done, Failed, Outcome, Retry, UnrecoverableFailure, handler_frames
from tampu.server.connect import connect
from tampu.server.inspection import any_exists
from tampu.server.lane import Lane
from tampu.server.scripts.gate import admit
from tampu.server.scripts.virtual_time import travel
from tampu.testing.queue_bench import Attempt, BenchRules, Ended, QueueBench
from tampu.testing.runners import failure_error, refusal_error, run_together
from tampu.util.clock import instant, now_ms
from tampu.wire.flow import is_of_flow
from tampu.wire.keys import QueueKeys

_SETTLE_S: Final = 10.0
_DELAYED, _SCHEDULES, _GATES = range(3)  # the order of the sets that time travels through
_PROMOTE: Final = 500
_LONG_S: Final = 10 * 365 * 86_400  # longer than any test travels


class Bench:
    """Runs what is waiting, and makes ready what is due. Belongs to the loop that opened it."""

    def __init__(self, lane: Lane, rules: BenchRules, stack: AsyncExitStack) -> None:
        self.lane = lane
        self._rules = rules
        self._stack = stack
        self._queues: dict[str, QueueBench] = {}
        self._opening, self._reading = asyncio.Lock(), asyncio.Lock()
        self._has_read = False  # whether all that waits is known

    @classmethod
    async def open(cls, rules: BenchRules) -> Self:
        """Connect."""
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(await connect(rules.url))
            lane = await stack.enter_async_context(await Lane.open(server, b"tampu"))
            return cls(lane, rules, stack.pop_all())

    async def finish(self) -> None:
        """Send what is left to send. Nothing can be run any more."""
        queues, self._queues = self._queues, {}
        for queue in queues.values():
            await queue.close()

    async def close(self) -> None:
        """Disconnect."""
        async with self._stack:
            await self.finish()

    async def serve(self, names: Iterable[str]) -> None:
        """Run the jobs of these queues too."""
        if new := set(names) - self._queues.keys():
            async with self._opening:
                for name in sorted(new - self._queues.keys()):
                    queue = QueueBench(self.lane, QueueKeys(name), self._rules)
                    await queue.open()
                    self._queues[name] = queue
            self.look_again()

    # --- time -----------------------------------------------------------------------------------

    async def move(self, latest_ms: int, *, with_now: bool) -> bool:
        """Move the time to the next instant at which something is due, and make that ready.

        False if nothing is due up to `latest_ms`, which then is the time.
        """
        queues = list(self._queues.values())
        sets = [each.keys.delayed for each in queues] + [each.keys.repeat for each in queues]
        sets += [each.keys.gate_wake for each in queues]
        due = await travel(self.lane, sets, latest_ms=latest_ms, with_now=with_now)
        found = [(number // len(queues), queues[number % len(queues)]) for number in due]
        for kind, queue in found:
            if kind == _SCHEDULES:
                await queue.fire()
            elif kind == _GATES:
                await admit(self.lane, queue.keys)
        promotions = [queue.promote() for kind, queue in found if kind == _DELAYED]
        # Sent together, in this order, unless the server does not know the script yet.
        await asyncio.gather(*promotions, self._read(learn=False))
        self._has_read = any(each.heads for each in queues)
        return bool(due)

    async def pass_time(self, to_ms: int) -> None:
        """Move the time; what is due on the way stays where it is."""
        await travel(self.lane, (), latest_ms=to_ms, with_now=False)

    # --- running --------------------------------------------------------------------------------

    def look_again(self) -> None:
        """Jobs may have been added, cancelled or paused, by other than what runs here."""
        self._has_read = False

    async def run_next(self) -> list[Ended]:
        """Run the job that has waited longest, with others of its batch; none if there is none."""
        if self._rules.inline or not self._has_read:
            await self._read()
        self._has_read = False
        waiting = [each for each in self._queues.values() if each.heads and not each.paused]
        if not waiting:
            return []
        queue = min(waiting, key=_order)
        entry = queue.heads.popleft()
        accepted = await queue.complete(queue.accept(entry))
        for burial in accepted.refused:
            queue.settler.bury(burial)
            await queue.settler.drain(_SETTLE_S)
            return [Ended(None, refusal_error(burial), burial.job_id, is_final=True)]
        delivery = accepted.deliveries[0]
        if queue.stops(delivery):
            await queue.settler.drain(_SETTLE_S)
            return [Ended(None, None, delivery.job.id, is_final=True)]
        if delivery.plan.batch is None:
            return await self._run(queue, [delivery])
        async with self._reading:
            batch = await queue.read_batch(delivery, delivery.plan.batch)
        return await self._run(queue, batch)

    async def _read(self, *, learn: bool = True) -> None:
        """Read the next entry of each queue that has none; learn what a test or a job has done."""
        async with self._reading:  # then no entry is on its way to another task
            queues = self._queues.values()
            reads = [each.read() for each in queues if not each.heads]
            await asyncio.gather(*reads, *(each.learn() for each in queues if learn))
            if await self._relay():
                await asyncio.gather(*(each.read() for each in queues if not each.heads))
        self._has_read = True

    async def relay(self, names: Iterable[str]) -> None:
        """Add the jobs that wait for a relay: those of maps, and of other queues."""
        if await any_exists(self.lane, [QueueKeys(each).outbox for each in names]):
            await self.serve(names)
            async with self._reading:
                await self._learn()
                await self._relay()

    async def _relay(self) -> bool:
        """Whether there was something to bring; what one queue gets may be something to bring."""
        has_brought = False
        while any([await each.relay() for each in self._queues.values() if each.has_flows]):
            has_brought = True
            await self._learn()
        return has_brought

    async def _learn(self) -> None:
        await asyncio.gather(*(each.learn() for each in self._queues.values()))

    async def flush_events(self) -> None:
        """Return when all events of the jobs are written."""
        for queue in self._queues.values():
            await queue.flush_events()

    async def _run(self, queue: QueueBench, deliveries: list[Delivery]) -> list[Ended]:
        rules, ids = self._rules, [each.job.id for each in deliveries]
        settled = asyncio.get_running_loop().create_future()
        rules.running.update(dict.fromkeys(ids, settled))
        began = perf_counter_ns()
        queue.running.extend(deliveries)
        try:
            for each in deliveries:
                if queue.settler.start is not None:
                    queue.settler.start(each)
                await queue.free_key(each)
            outcomes = await run_together(deliveries, rules.raised, queue=queue.keys.name)
            for each, outcome in zip(deliveries, outcomes, strict=True):
                now = isinstance(outcome, Failed) and rules.inline
                put = msgspec.structs.replace(outcome, after_ms=0) if now else outcome
                queue.settler.put(each, put, perf_counter_ns() - began)
            settling = queue.settler.drain(_SETTLE_S)
            if all(isinstance(each, Done) for each in outcomes) and not any(map(is_of_flow, ids)):
                is_settled, _ = await asyncio.gather(settling, self._read())
            else:
                is_settled = await settling  # it may run again, or let others run: read then
            if not is_settled:
                raise TampuError(f"The server did not take the outcome of job {ids[0]} in time.")
        finally:
            for each in deliveries:
                rules.running.pop(each.job.id, None)
                queue.running.remove(each)
            settled.set_result(None)
        return [
            self._settle_outcome(queue, *ended) for ended in zip(deliveries, outcomes, strict=True)
        ]

    def _settle_outcome(self, queue: QueueBench, delivery: Delivery, outcome: Outcome) -> Ended:
        raised, job = self._take_error(queue, delivery), delivery.job
        is_last, at = job.attempt >= delivery.budget, instant(now_ms())
        match outcome:
            case Done(value):
                burial = settle(delivery, outcome, queue.rules)
                if isinstance(burial, BuryEntry):  # its result cannot be stored
                    problem = failure_error(delivery, burial.failure)
                    return Ended(Attempt(job, at, value, problem), problem, job.id, is_final=True)
                return Ended(Attempt(job, at, value), None, job.id, is_final=True)
            case Failed(failure) | UnrecoverableFailure(failure):
                error: BaseException = raised or failure_error(delivery, failure)
                is_final = is_last or isinstance(outcome, UnrecoverableFailure)
                seen = None if isinstance(error, Retry) and not is_final else error
                return Ended(Attempt(job, at, None, error), seen, job.id, is_final)
            case _:
                return Ended(Attempt(job, at, None, raised), None, job.id, is_final=False)

    def _take_error(self, queue: QueueBench, delivery: Delivery) -> BaseException | None:
        """What the attempt has raised, as the test should see it: from the handler on."""
        job = delivery.job
        error = self._rules.raised.pop(job.id, None)
        if error is not None:
            error.__traceback__ = handler_frames(error)
            queue_name, budget = queue.keys.name, delivery.budget
            note = f"Raised by job {job.id} ({job.name}) of queue {queue_name}"
            error.add_note(f"{note}, attempt {job.attempt} of {budget}.")
        return error


def _order(queue: QueueBench) -> tuple[int, ...]:
    """Entries are added in the order of their ids, which have a time and a number."""
    return tuple(map(int, queue.heads[0][0].split(b"-")))


def kit_settings(settings: WorkerSettings) -> WorkerSettings:
    """A worker's settings in a test: results are stored, for longer than the test travels."""
    kept = timedelta(seconds=_LONG_S)
    return replace(settings, store_results=True, result_ttl=kept, isolation=None)
