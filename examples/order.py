"""An order in several steps: what may fail has a default, and what was done is undone at the end.

It prints:

    order 1: shipped with coupon 10, paid 90
    order 2: shipped with coupon 0, paid 100
    order 3: refunded 100, because there is no truck
"""

import asyncio

from tampu import App, AppWorker, NodeFailed, Ok

app = App(default_queue="orders")


@app.task(attempts=1)
async def find_coupon(order: int) -> int:
    """A service that is not important: without its answer there is no coupon."""
    if order != 1:
        raise ConnectionError("no answer")
    return 10


@app.task
async def charge(order: int, coupon: int) -> int:
    """Waits for the coupon, or for its default."""
    return 100 - coupon


@app.task(attempts=1)
async def ship(order: int, paid: int) -> str:
    """Fails for good for one order."""
    if order == 3:
        raise RuntimeError("there is no truck")
    return f"shipped with coupon {100 - paid}, paid {paid}"


@app.task
async def finish(order: int, paid: int, shipped: Ok[str] | NodeFailed) -> str:
    """Runs however the shipping has ended, and pays back if it has failed."""
    if isinstance(shipped, NodeFailed):
        return f"order {order}: refunded {paid}, because {shipped.message}"
    return f"order {order}: {shipped.value}"


async def main() -> None:
    async with app, AppWorker(app):
        for order in (1, 2, 3):
            flow = app.flow("order")
            coupon = flow.add(find_coupon, order).default(0)
            paid = flow.add(charge, order, coupon)
            shipped = flow.add(ship, order, paid)
            done = flow.add(finish, order, paid, shipped.outcome)
            run = await flow.start(result=done)
            print(await run.result(timeout=20))


if __name__ == "__main__":
    asyncio.run(main())
