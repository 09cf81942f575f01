"""An outage is logged once when it begins and once when it ends, for all parts that it hits."""

import threading

import pytest

from tampu.errors import AccessDenied, ConnectionLost, ServerBusy, ServerUnreachable
from tampu.server.outage import Outage

LOST = ConnectionLost("redis://here", "it closed the connection")
AWAY = ServerUnreachable("redis://here", "connection refused")
BUSY = ServerBusy("redis://here", "LOADING", "loading the dataset")
DENIED = AccessDenied("redis://here", "NOPERM")

BEGIN = "redis://here is unavailable, retrying: it closed the connection"
END = "redis://here is available again after 0.0 s"


@pytest.fixture
def outage() -> Outage:
    return Outage("redis://here")


def test_many_parts_log_two_lines(outage: Outage, caplog: pytest.LogCaptureFixture) -> None:
    parts = [outage.part(f"part {number}") for number in range(5)]
    for error in (LOST, AWAY, BUSY):
        for part in parts:
            part.begin(error)
    assert caplog.messages == [BEGIN]
    for part in parts[:-1]:
        part.end()
    assert caplog.messages == [BEGIN]
    parts[-1].end()
    assert caplog.messages == [BEGIN, END]
    assert caplog.records[0].__dict__["server"] == "redis://here"
    assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_the_next_outage_is_logged_again(outage: Outage, caplog: pytest.LogCaptureFixture) -> None:
    part = outage.part("reading")
    for _ in range(2):
        part.begin(LOST)
        part.end()
    assert caplog.messages == [BEGIN, END] * 2


def test_success_without_trouble_logs_nothing(
    outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    outage.part("reading").end()
    assert caplog.messages == []


def test_an_error_of_one_part_is_logged_for_that_part(
    outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    reading, acks = outage.part("reading"), outage.part("acks")
    for part in (reading, reading, acks):
        part.begin(DENIED)
    acks.end()
    assert caplog.messages == [
        f"reading failed, retrying: {DENIED}",
        f"acks failed, retrying: {DENIED}",
        "acks works again",
    ]


def test_a_part_that_is_refused_after_an_outage_does_not_prolong_it(
    outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    part = outage.part("reading")
    part.begin(LOST)
    part.begin(DENIED)
    assert caplog.messages == [BEGIN, END, f"reading failed, retrying: {DENIED}"]


def test_a_part_that_is_closed_does_not_claim_that_the_server_is_back(
    outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    part = outage.part("reading")
    part.begin(LOST)
    part.end(recovered=False)
    assert caplog.messages == [BEGIN]


def test_the_end_is_logged_if_the_last_failing_part_is_closed_and_others_work_again(
    outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    reading, closed = outage.part("reading"), outage.part("wakeup")
    reading.begin(LOST)
    closed.begin(LOST)
    reading.end()
    closed.end(recovered=False)
    assert caplog.messages == [BEGIN, END]


def test_pauses_grow_until_a_success(outage: Outage) -> None:
    part = outage.part("reading")
    pauses = [part.begin(LOST) for _ in range(12)]
    assert pauses[0] <= 0.05
    assert 1.0 <= pauses[-1] <= 2.0
    part.end()
    assert part.begin(LOST) <= 0.05


def test_threads_share_an_outage(outage: Outage, caplog: pytest.LogCaptureFixture) -> None:
    parts = [outage.part(f"part {number}") for number in range(8)]
    threads = [threading.Thread(target=part.begin, args=(LOST,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert caplog.messages == [BEGIN]
