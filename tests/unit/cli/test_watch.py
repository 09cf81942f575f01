"""A queue with its rates, in a table and in a line."""

from tampu.admin.rates import QueueRates, Rates
from tampu.cli.watch import rates_line, rates_table
from tests.unit.cli.tables import print_view
from tests.unit.cli.test_inspect import ALIVE, NOW, SUMMARY


def test_a_queue_is_a_row_or_a_line() -> None:
    flow = QueueRates(
        queue="emails",
        at=NOW,
        counts=SUMMARY.counts,
        rates=Rates(1.25, 100_000, None),
        workers=[ALIVE],
    )
    assert print_view(rates_table([flow]))[1].split() == [
        *("emails", "1000000", "100", "20000", "3000", "1.2", "100000", "-", "1"),
    ]
    assert rates_line(flow) == (
        "2026-11-15 12:00:00Z emails waiting=1000000 active=100 delayed=20000 dead=3000 "
        "added/s=1.2 done/s=100000 failed/s=- workers=1"
    )
