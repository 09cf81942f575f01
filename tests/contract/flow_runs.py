"""Flows that the tests of what shows them look at."""

from dataclasses import dataclass, field
from typing import Any

from tampu import App, FlowRun
from tests.waiting import wait_until

SOON = 20.0


@dataclass
class FlowShop:
    """An app with tasks on two queues; `fails` says whether `boom` does."""

    url: str
    fails: bool = True
    app: App = field(init=False)

    def __post_init__(self) -> None:
        self.app = App(self.url)
        self.fetch = self.app.task(name="fetch")(self._fetch)
        self.count = self.app.task(name="count")(self._count)
        self.merge = self.app.task(name="merge", queue="other")(self._merge)
        self.boom = self.app.task(name="boom", queue="other", attempts=1)(self._boom)

    async def _fetch(self, count: int) -> list[int]:
        return list(range(count))

    async def _count(self, number: int) -> int:
        return number

    async def _merge(self, numbers: list[int]) -> int:
        return sum(numbers)

    async def _boom(self, number: int) -> int:
        if self.fails:
            raise ValueError("no luck")
        return number

    async def start_sum(self, count: int = 3) -> FlowRun[Any]:
        """A list, a map over it, and a sum on another queue."""
        flow = self.app.flow("sum")
        counts = flow.map(self.count, flow.add(self.fetch, count))
        return await flow.start(result=flow.add(self.merge, counts))

    async def start_far(self) -> FlowRun[Any]:
        """A flow whose home is the other queue, which none of its jobs is on."""
        flow = self.app.flow("far", queue="other")
        flow.add(self.fetch, 1)
        return await flow.start()

    async def start_failing(self) -> FlowRun[Any]:
        """A job that fails on another queue, and one that waits for it."""
        flow = self.app.flow("bad")
        return await flow.start(result=flow.add(self.count, flow.add(self.boom, 7)))


async def wait_for_state(run: FlowRun[Any], state: str) -> None:
    """Wait until a flow is in a state."""

    async def there() -> bool:
        info = await run.info()
        return info is not None and info.state.value == state

    await wait_until(there, within=SOON, sentence=f"the flow is {state}")
