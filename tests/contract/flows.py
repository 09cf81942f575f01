"""An app with tasks that tests of flows use, on two queues."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, ParamSpec, TypeVar, Unpack

from tampu import (
    App,
    AppWorker,
    Backoff,
    Concurrency,
    FlowInfo,
    FlowRun,
    NodeFailed,
    Ok,
    Queue,
    Results,
    Task,
)
from tampu.consumer.options import WorkerOptions
from tampu.tasks.settings import PlainTaskKeywords
from tests.contract.apps import working
from tests.contract.workers import SOON
from tests.servers import RunningServer
from tests.waiting import wait_until

OTHER = "other"
P = ParamSpec("P")
R = TypeVar("R")


class FlowApp:
    """An app with tasks, and what happened to them."""

    def __init__(self, running: RunningServer) -> None:
        self.app = App(running.url)
        self.ran: list[object] = []
        self.fails = True
        self.goes_on = asyncio.Event()
        self.double = self._task(self._double)
        self.words = self._task(self._words)
        self.count = self._task(self._count)
        self.size = self._task(self._size)
        self.size_there = self._task(self._size_there, queue=OTHER)
        self.add_up = self._task(self._add_up)
        self.add_up_there = self._task(self._add_up_there, queue=OTHER)
        self.count_outcomes = self._task(self._count_outcomes)
        self.one_outcome = self._task(self._one_outcome)
        self.read_all = self._task(self._read_all)
        self.pair = self._task(self._pair)
        self.refuse = self._task(self._refuse, attempts=1)
        self.refuse_there = self._task(self._refuse_there, attempts=1, queue=OTHER)
        self.refuse_three = self._task(self._refuse_three, attempts=1)
        self.mostly = self._task(self._mostly, attempts=1)
        self.hold = self._task(self._hold)
        self.hold_there = self._task(self._hold_there, queue=OTHER)
        self.note = self._task(self._note)
        late = Backoff.fixed(3600)
        self.try_later = self._task(self._try_later, attempts=5, backoff=late)
        one = Concurrency(1)
        self.in_line = self._task(self._in_line, key="tenant", limits=[one])

    def _task(
        self, function: Callable[P, Coroutine[Any, Any, R]], **options: Unpack[PlainTaskKeywords]
    ) -> Task[P, R]:
        options.setdefault("name", function.__name__.removeprefix("_"))
        return self.app.task(**options)(function)

    @property
    def home(self) -> Queue:
        """The queue that keeps the flows."""
        return self.app.queue()

    @property
    def other(self) -> Queue:
        """The other queue."""
        return self.app.queue(OTHER)

    @asynccontextmanager
    async def at_work(self, **options: Unpack[WorkerOptions]) -> AsyncIterator[AppWorker]:
        """With a worker of both queues."""
        async with working(self.app, **options) as worker:
            yield worker

    async def info(self, run: FlowRun[Any]) -> FlowInfo:
        """What is known about a flow that exists."""
        info = await run.info()
        assert info is not None
        return info

    async def ends(self, run: FlowRun[Any], state: str) -> FlowInfo:
        """Wait until a flow is in a state and nothing of it runs."""

        async def is_over() -> bool:
            info = await self.info(run)
            return info.state.value == state and info.ended_at is not None

        await wait_until(is_over, within=SOON, sentence=f"the flow is {state}")
        return await self.info(run)

    # --- tasks ----------------------------------------------------------------------------------

    async def _double(self, number: int) -> int:
        self.ran.append(number)
        return 2 * number

    async def _words(self, text: str) -> list[str]:
        return text.split()

    async def _count(self, words: list[str]) -> int:
        return len(words)

    async def _size(self, word: str, weight: int = 1) -> int:
        self.ran.append(word)
        return len(word) * weight

    async def _size_there(self, word: str) -> int:
        return len(word)

    async def _add_up(self, numbers: list[int], extra: int = 0) -> int:
        self.ran.append("sum")
        return sum(numbers) + extra

    async def _add_up_there(self, numbers: list[int], label: str) -> dict[str, int]:
        return {label: sum(numbers)}

    async def _count_outcomes(self, outcomes: list[Ok[int] | NodeFailed]) -> list[int]:
        done = sum(isinstance(each, Ok) for each in outcomes)
        return [done, len(outcomes) - done]

    async def _one_outcome(self, outcome: Ok[int] | NodeFailed) -> str:
        return str(outcome.value) if isinstance(outcome, Ok) else outcome.reason

    async def _read_all(self, results: Results[int]) -> int:
        return sum([each async for each in results])

    async def _pair(self, left: int, right: int) -> list[int]:
        return [left, right]

    async def _refuse(self, number: int) -> int:
        self.ran.append(f"refuse {number}")
        if self.fails:
            raise ValueError(f"no {number}")
        return number

    async def _refuse_there(self, number: int) -> int:
        return await self._refuse(number)

    async def _refuse_three(self, number: int) -> int:
        return await self._refuse(number) if number == 3 else number

    async def _mostly(self, number: int) -> int:
        if number == 3:
            raise ValueError("three")
        return number

    async def _hold(self, number: int) -> int:
        self.ran.append(f"hold {number}")
        await self.goes_on.wait()
        return number

    async def _hold_there(self, number: int) -> int:
        return await self._hold(number)

    async def _note(self, what: object) -> None:
        self.ran.append(what)

    async def _try_later(self, number: int) -> int:
        self.ran.append(f"try {number}")
        raise ValueError(number)

    async def _in_line(self, number: int, tenant: str = "a") -> int:
        self.ran.append(f"in line {number} {tenant}")
        return number
