"""An outage is logged once when it begins and once when it ends."""

import logging

import pytest

from tampu.util.pauses import Outage, reconnect_pauses

logger = logging.getLogger("tampu.test")


@pytest.fixture
def outage(caplog: pytest.LogCaptureFixture) -> Outage:
    caplog.set_level(logging.WARNING, "tampu.test")
    return Outage(logger, "read events", server="redis://h")


def test_several_failures_are_one_outage(outage: Outage, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        outage.note_failure(ConnectionError("gone"))
    assert outage.is_on
    assert [record.message for record in caplog.records] == ["cannot read events, retrying: gone"]
    (record,) = caplog.records
    assert (vars(record)["server"], vars(record)["problem"]) == ("redis://h", "gone")


def test_its_end_is_logged_with_how_long_it_lasted(
    outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    outage.note_failure(ConnectionError("gone"))
    caplog.clear()
    for _ in range(3):
        outage.note_success()
    assert not outage.is_on
    (record,) = caplog.records
    assert record.message.startswith("can read events again after ")
    assert vars(record)["lasted_s"] >= 0


def test_successes_without_an_outage_log_nothing(
    outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    outage.note_success()
    assert caplog.records == []


def test_each_outage_is_logged(outage: Outage, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        outage.note_failure(ConnectionError("gone"))
        outage.note_success()
    assert len(caplog.records) == 4


def test_pauses_between_attempts_to_reconnect_stay_short() -> None:
    pauses = reconnect_pauses()
    drawn = [pauses.next_s() for _ in range(20)]
    assert drawn[0] <= 0.05
    assert max(drawn) <= 2
    assert min(drawn[-5:]) >= 1
