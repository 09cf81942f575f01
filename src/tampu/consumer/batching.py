"""Collects the jobs of batches until a slot of the pool takes them, and settles them.

A queue without a handler for batches has none of this.
"""

from __future__ import annotations

import asyncio
from time import monotonic, perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tampu.consumer.batch import BatchRun, JobBatch
from tampu.outcome import Throttled, outcome_of_error
from tampu.wire.payload import encode_payload

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from tampu.consumer.handler import Batch, HandlerPlan
    from tampu.consumer.intake import Delivery
    from tampu.consumer.pool import Settles
    from tampu.consumer.settler import Settler
    from tampu.job import Job
    from tampu.limits.model import By
    from tampu.outcome import Outcome

_MOST_BYTES: Final = 2**31


class BatchDelivery:
    """Jobs that one call of a handler gets: a slot of the pool runs it as it runs a `Delivery`.

    Until `begin`, jobs may join and leave.
    """

    def __init__(
        self, plan: HandlerPlan, *, batches: Batches | None = None, key: object = None
    ) -> None:
        self.plan = plan
        self.read_at = monotonic()  # when it became ready to start
        self.timer: asyncio.TimerHandle | None = None  # while it is not ready
        self._batches = batches
        self._key = key
        self._left: dict[Job[Any], Delivery] = {}
        self._settler: Settles | None = None
        self._job: JobBatch[Any] | None = None
        self._began_ns = 0
        self.timeout_s: float | None = None  # of the handler: the shortest of its jobs

    def __len__(self) -> int:
        return len(self._left)

    @property
    def job(self) -> JobBatch[Any]:
        """What the handler gets, from `begin` on."""
        assert self._job is not None  # noqa: S101 - a slot begins it first
        return self._job

    @property
    def jobs(self) -> list[Delivery]:
        """What is not settled yet."""
        return list(self._left.values())

    @property
    def budget(self) -> int:
        """How many attempts the job with the fewest has."""
        return min((each.budget for each in self.jobs), default=1)

    def add(self, delivery: Delivery) -> None:
        """One job more."""
        self._left[delivery.job] = delivery
        self._count(1)

    def take_out(self, delivery: Delivery) -> None:
        """A job leaves the batch before that starts."""
        del self._left[delivery.job]
        self._count(-1)
        if not self._left:
            self.seal()

    def seal(self) -> None:
        """No more jobs join."""
        if self._batches is not None:
            self._batches.forget(self._key, self)
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def withdraw(self) -> list[Delivery]:
        """Take back all jobs, which have not started."""
        withdrawn = self.jobs
        for each in withdrawn:
            self.take_out(each)
        return withdrawn

    def begin(self, settler: Settles) -> None:
        """A slot takes it."""
        self.seal()
        self._count(-len(self), running=len(self))
        self._settler, self._began_ns = settler, perf_counter_ns()
        limits = [each.timeout_s for each in self.jobs if each.timeout_s is not None]
        self.timeout_s = min(limits, default=None)
        jobs = list(self._left)
        self._job = JobBatch.of(jobs, BatchRun(jobs, self._settle_alone))

    async def prepare(self) -> bool:
        """Free the unique keys that its jobs hold until they start; False if it may not start."""
        holding = [each for each in self.jobs if each.frees_at_start]
        return not holding or self._batches is None or await self._batches.free(holding)

    def cancel(self, delivery: Delivery) -> bool:
        """Note that a job was cancelled while the batch runs; whether all that are left were."""
        run = self.job.run
        run.cancelled.add(delivery.job)
        return run.is_cancelled

    def end(self) -> list[Delivery]:
        """The handler has ended; what is left to settle."""
        left, self._left = self.jobs, {}
        self._count(0, running=-len(left))
        self.job.run.close()
        return left

    def _count(self, held: int, *, running: int = 0) -> None:
        if self._batches is not None:
            self._batches.held += held
            self._batches.running += running

    def _settle_alone(self, job: Job[Any], outcome: Outcome) -> None:
        delivery = self._left.pop(job, None)
        if delivery is not None and self._settler is not None:
            self._count(0, running=-1)
            self._settler.put(delivery, outcome, perf_counter_ns() - self._began_ns)


Work: TypeAlias = "Delivery | BatchDelivery"
"""What a slot of the pool runs."""


def jobs_of(works: Iterable[Work]) -> list[Delivery]:
    """The jobs of single deliveries and of batches."""
    found: list[Delivery] = []
    for each in works:
        if type(each) is BatchDelivery:
            found += each.jobs
        else:
            found.append(each)  # type: ignore[arg-type] # mypy does not narrow it by `type`
    return found


def batch_value(by: By, data: object) -> bytes:
    """The value that all jobs of a batch have in common; raises what a function of users raises."""
    if by is None:
        return b""
    value = by(data) if callable(by) else data.get(by) if isinstance(data, dict) else None
    return encode_payload(value, max_bytes=_MOST_BYTES)


class Batches:
    """The batches of a queue that wait for jobs or for a slot.

    A batch goes to the pool when it is full or has waited long enough. Jobs join it until a slot
    takes it.
    """

    def __init__(
        self,
        plans: Mapping[str | None, HandlerPlan],
        settler: Settler,
        *,
        free: Callable[[list[Delivery]], Awaitable[bool]],
    ) -> None:
        own = [plan.batch for plan in plans.values() if plan.batch is not None]
        self.size = max(each.size for each in own)
        self.share = float(len(own) == len(plans))  # of jobs with a batch among the latest
        self.held = 0  # jobs in batches that have not started
        self.running = 0  # jobs in batches that run, not settled yet
        self.free = free
        self._settler = settler
        self._filling: dict[object, BatchDelivery] = {}  # some wait for a slot already
        self._offer: Callable[[list[BatchDelivery]], None] = list.clear

    @property
    def a_slot(self) -> float:
        """How many jobs a slot can take, if as many of them as lately belong to batches."""
        return 1 + self.share * (self.size - 1)

    def open(self, offer: Callable[[list[BatchDelivery]], None]) -> None:
        """Begin; `offer` gets the batches that may start."""
        self._offer = offer

    def collect(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Take those that start in batches; the others."""
        others = [each for each in deliveries if each.plan.batch is None]
        if deliveries:
            taken = len(deliveries) - len(others)
            self.share = (self.share + taken / len(deliveries)) / 2
        for each in deliveries:
            if each.plan.batch is not None:
                self._add(each, each.plan.batch)
        return others

    def waiting(self) -> list[Delivery]:
        """The jobs in batches that the pool does not have yet."""
        return jobs_of(self._not_ready())

    def withdraw(self) -> list[Delivery]:
        """Take back the jobs in batches that the pool does not have yet, the youngest first."""
        return [each for work in self._not_ready() for each in work.withdraw()][::-1]

    def take_out(self, is_chosen: Callable[[Delivery], object]) -> list[Delivery]:
        """Take back these of the jobs in batches that the pool does not have yet."""
        taken: list[Delivery] = []
        for work in self._not_ready():
            for each in filter(is_chosen, work.jobs):
                work.take_out(each)
                taken.append(each)
        return taken

    def forget(self, key: object, work: BatchDelivery) -> None:
        """No more jobs join this batch."""
        if self._filling.get(key) is work:
            del self._filling[key]

    def _not_ready(self) -> list[BatchDelivery]:
        return [each for each in self._filling.values() if each.timer is not None]

    def _add(self, delivery: Delivery, batch: Batch) -> None:
        try:
            key = (id(delivery.plan), batch_value(batch.by, delivery.job.data))
        except Exception as error:  # noqa: BLE001 - border: a function of the user's
            self._settler.put(delivery, outcome_of_error(error), 0)
            return
        work = self._filling.get(key)
        if work is None:
            work = BatchDelivery(delivery.plan, batches=self, key=key)
            self._filling[key] = work
            loop = asyncio.get_running_loop()
            work.timer = loop.call_later(batch.wait_s, self._make_ready, work)
        work.add(delivery)
        if len(work) >= batch.size:
            is_new = work.timer is not None
            work.seal()
            if is_new:
                self._make_ready(work)

    def _make_ready(self, work: BatchDelivery) -> None:
        work.timer, work.read_at = None, monotonic()
        self._offer([work])


class BatchSettler:
    """Settles what a pool with batches runs: of a batch, each job that is left."""

    def __init__(self, settler: Settles) -> None:
        self._settler = settler
        self._start = settler.start
        self.cancel: Final = settler.cancel

    def start(self, work: Work) -> None:
        """An attempt begins."""
        if isinstance(work, BatchDelivery):
            work.begin(self._settler)
        if self._start is not None:
            for each in jobs_of((work,)):
                self._start(each)

    def put(self, work: Work, outcome: Outcome, duration_ns: int) -> None:
        """An attempt has ended."""
        if not isinstance(work, BatchDelivery):
            self._settler.put(work, outcome, duration_ns)
            return
        left = work.end()
        if isinstance(outcome, Throttled):
            left.reverse()  # each goes to the head of its line
        for each in left:
            self._settler.put(each, outcome, duration_ns)
