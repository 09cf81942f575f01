"""A small shop, written as you would write your own program. `tampu demo` runs it.

Orders become e-mails and invoices, and a flow charges, packs and ships each of them: if a card is
declined, nothing is packed, and the customer is told in any case. The mail server is often busy, so
some e-mails need a second attempt, and its provider takes only so many a second. Some addresses are
wrong, so their e-mails become dead letters. Invoices take their time: each branch of the shop has
two printers, and the branches take turns. Every third customer gets a reminder a few seconds later,
and a schedule reports how many e-mails are still to be sent.
"""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from tampu.app import App
from tampu.backoff import Backoff
from tampu.flows.nodes import NodeFailed, NodeOutcome
from tampu.flows.run import FlowRun
from tampu.job import Job
from tampu.limits import Concurrency, Rate
from tampu.outcome import Bury
from tampu.tasks.signature import INJECTED
from tampu.timing import Every

ORDERS: Final = "tampu-demo-orders"
EMAILS: Final = "tampu-demo-emails"
INVOICES: Final = "tampu-demo-invoices"
REMINDER_AFTER: Final = timedelta(seconds=3)

BRANCHES: Final = ("north", "south", "east", "north", "south", "west", "north", "east")

app = App(default_queue=ORDERS)
provider = app.limit("mail-provider", Rate("6/s", burst=6))


@dataclass(frozen=True, slots=True)
class Order:
    """What a customer orders, and where the e-mails go."""

    number: int
    to: str
    pieces: int
    branch: str


@dataclass(frozen=True, slots=True)
class OrderJobs:
    """The ids of what follows an order: jobs, and the flow that brings it to the customer."""

    confirmation: str
    invoice: str
    reminder: str | None
    flow: str


@app.task
async def take_order(order: Order, job: Job[OrderJobs] = INJECTED) -> OrderJobs:
    """Pack an order and add the jobs that follow it, without waiting for them."""
    for packed in range(1, order.pieces + 1):
        await asyncio.sleep(0.05)
        job.progress(100 * packed // order.pieces)
    confirmation = await confirm.enqueue(order)
    invoice = await write_invoice.enqueue(order, order.branch)
    run = await deliver(order)
    if order.number % 3:
        return OrderJobs(confirmation.id, invoice.id, None, run.id)
    due = datetime.now(UTC) + REMINDER_AFTER
    reminder = await remind.options(at=due).enqueue(order, due)
    return OrderJobs(confirmation.id, invoice.id, reminder.id, run.id)


async def deliver(order: Order) -> FlowRun[str]:
    """Charge the customer, pack all pieces at a time and ship them; tell how the payment went."""
    flow = app.flow("deliver order")
    payment = flow.add(charge, order)
    parcels = flow.map(pack, range(1, order.pieces + 1), order).needs(payment)
    flow.add(tell_customer, order, payment=payment.outcome.value)
    return await flow.start(result=flow.add(ship, order, parcels=parcels.value))


@app.task(attempts=3, backoff=Backoff.fixed("500ms"))
async def charge(order: Order, job: Job[str] = INJECTED) -> str:
    """Charge the customer's card; returns the number of the receipt."""
    await asyncio.sleep(0.15)
    if order.number % 9 == 8:
        raise Bury("the card was declined")
    if order.number % 7 == 6 and job.attempt == 1:
        raise ConnectionError("the bank does not answer")
    return f"R-{order.number}"


@app.task
async def pack(piece: int, order: Order) -> str:
    """Pack one piece; returns the number of its parcel."""
    await asyncio.sleep(0.1 + 0.08 * piece)
    return f"P-{order.number}-{piece}"


@app.task
async def ship(order: Order, parcels: list[str]) -> str:
    """Hand the parcels over; returns the number to track them with."""
    await asyncio.sleep(0.05 * len(parcels))
    return f"T-{order.number}"


@app.task(queue=EMAILS)
async def tell_customer(order: Order, payment: NodeOutcome[str]) -> str:
    """Send the receipt, or say why there is none."""
    del order
    await asyncio.sleep(0.03)
    return payment.message if isinstance(payment, NodeFailed) else payment.value


@app.task(
    queue=EMAILS,
    attempts=3,
    backoff=Backoff.exponential("300ms", jitter="200ms"),
    limits=[provider],
)
async def confirm(order: Order, job: Job[None] = INJECTED) -> None:
    """Send the confirmation, with up to three attempts."""
    await asyncio.sleep(0.04)
    if not order.to.partition("@")[2]:
        raise Bury("not a valid address")  # another attempt would not help
    if order.to.endswith("example.invalid"):
        raise ConnectionError("the mail server does not answer")
    if order.number % 4 == 0 and job.attempt == 1:
        raise ConnectionError("the mail server is busy")


@app.task(queue=EMAILS)
async def remind(order: Order, due: datetime) -> float:
    """Send a reminder; returns how many milliseconds late it is."""
    del order
    return (datetime.now(UTC) - due) / timedelta(milliseconds=1)


@app.task(
    queue=INVOICES,
    attempts=2,
    backoff=Backoff.fixed("1s"),
    key="branch",
    limits=[Concurrency(2, by="branch")],
)
async def write_invoice(order: Order, branch: str, job: Job[None] = INJECTED) -> None:
    """Write an invoice, which takes longer for larger orders."""
    del branch
    await asyncio.sleep(0.2 + 0.15 * order.pieces)
    if order.number % 20 == 0:
        raise LookupError("no tax rate for this country")
    if order.number % 6 == 5 and job.attempt == 1:
        raise TimeoutError("the printer is out of paper")


@app.schedule(Every("2s"))
@app.task
async def report_backlog() -> int:
    """Count the e-mails that are still to be sent, every two seconds."""
    counts = await app.queue(EMAILS).counts()
    return counts.waiting + counts.active + counts.delayed


def order_of(number: int) -> Order:
    """The order with a number; of each forty, the third and the seventh have wrong addresses."""
    wrong = {3: "nobody", 7: "kim@example.invalid"}
    to = wrong.get(number % 40, f"customer{number}@example.com")
    return Order(number, to, pieces=1 + number % 5, branch=BRANCHES[number % len(BRANCHES)])
