"""An outbox: an order and the job for its receipt are stored together, or not at all.

It prints:

    order 1 of tea: receipt sent
    order 2 of poison: rolled back
    receipts of orders: [1, 3]
"""

import asyncio
import sqlite3
from contextlib import closing

from tampu import App, AppWorker
from tampu.outbox import Outbox

DATABASE = "shop.db"

app = App(default_queue="receipts")
outbox = Outbox(app, database=f"sqlite:///{DATABASE}")
sent: list[int] = []


@app.task
async def send_receipt(order: int) -> str:
    sent.append(order)
    return "receipt sent"


def buy(connection: sqlite3.Connection, order: int, item: str) -> str:
    """Store an order and its job in one transaction. Returns the id of the job."""
    with connection:  # commits at the end, or rolls back
        connection.execute("INSERT INTO orders VALUES (?, ?)", (order, item))
        job = outbox.enqueue_sync(connection, send_receipt.call(order))
        if item == "poison":
            raise ValueError(item)
    outbox.wake()  # optional: the relay looks each second
    return job.id


async def main() -> None:
    """Start the worker in the same program. Usually you run `tampu worker outbox:app`."""
    await outbox.create_table()
    with closing(sqlite3.connect(DATABASE)) as connection:
        connection.execute("PRAGMA journal_mode=wal")
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")
        connection.commit()
        async with AppWorker(app):
            first = send_receipt.job(buy(connection, 1, "tea"))
            print("order 1 of tea:", await first.result(timeout=10))
            try:
                buy(connection, 2, "poison")
            except ValueError:
                print("order 2 of poison: rolled back")
            await send_receipt.job(buy(connection, 3, "coffee")).result(timeout=10)
    print("receipts of orders:", sent)
    app.close_sync()  # optional: happens at the end of the program anyway


if __name__ == "__main__":
    asyncio.run(main())
