"""A job that went through a table is added as if it had been added directly."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from tampu.backoff import Backoff
from tampu.errors import DecodeError, EncodeError, OptionError
from tampu.job import NewJob
from tampu.limits import Concurrency, Limit, Rate
from tampu.outbox.encoding import read_request, store_job
from tampu.producer.options import QueueSettings
from tampu.producer.request import request_for
from tampu.unique import Unique
from tampu.util.clock import now_ms

RULES = QueueSettings(unique_for="1d").job_rules
JOBS: dict[str, dict[str, Any]] = {
    "plain": {},
    "retries": {"attempts": 3, "backoff": Backoff.exponential(0.1, max=30)},
    "limits": {"timeout": 5, "expires": "1h", "tenant": "acme", "headers": {"a": "b"}},
    "unique": {"unique": Unique(key="k", on_conflict="replace")},
    "own id": {"unique_for": "2h"},
    "line": {"key": "k", "priority": 9, "weight": 2.5, "ordered": True, "cost": 3},
    "limit": {"limits": [Concurrency(2, by="to"), Rate("5/m"), Limit("api")]},
    "latest": {"key": "k", "keep": "latest"},
    "room": {"key": "k", "max_waiting": 3, "on_full": "drop_old"},
}


def stored(job: NewJob) -> bytes:
    return store_job("emails", job, RULES, headers={}).body


@pytest.mark.parametrize("options", JOBS.values(), ids=JOBS)
def test_every_option_survives(options: dict[str, Any]) -> None:
    job = NewJob("send", {"to": "ada"}, job_id="it", **options)
    at_ms = now_ms()
    direct = request_for(job, RULES, at_ms)
    found = read_request(stored(job), at_ms)
    expected = msgspec.structs.replace(direct, data=None)
    deadlines = (found.extras.deadline_ms or 0, expected.extras.deadline_ms or 0)
    assert abs(deadlines[0] - deadlines[1]) < 60_000
    same = msgspec.structs.replace(found.extras, deadline_ms=expected.extras.deadline_ms)
    assert msgspec.structs.replace(found, extras=same) == expected


def test_a_delay_counts_from_when_the_job_was_stored() -> None:
    before = now_ms()
    body = stored(NewJob("send", delay="1h"))
    later = read_request(body, before + 1_800_000)
    assert 1_790_000 < later.delay_ms < 1_860_000
    assert before + 3_600_000 <= int(later.due) < before + 3_660_000
    overdue = read_request(body, before + 7_200_000)
    assert (overdue.due, overdue.delay_ms, overdue.index_s) == (b"", 0, b"")


def test_an_instant_survives() -> None:
    at = datetime.now(UTC) + timedelta(hours=1)
    found = read_request(stored(NewJob("send", at=at)), now_ms())
    assert abs(int(found.due) - at.timestamp() * 1000) < 60_000


def test_an_id_stays_taken_for_a_day_unless_the_job_says_otherwise() -> None:
    assert read_request(stored(NewJob("send")), now_ms()).marker_s == b"86401"
    short = stored(NewJob("send", job_id="it", unique_for="1m"))
    assert read_request(short, now_ms()).marker_s == b"61"


def test_headers_of_the_trace_are_added_to_those_of_the_job() -> None:
    body = store_job("q", NewJob("send", headers={"a": "own"}), RULES, headers={"a": "x", "b": "y"})
    assert read_request(body.body, 0).extras.headers == {"a": "own", "b": "y"}


@pytest.mark.parametrize(
    "job",
    [
        NewJob("send", unique=Unique(key="k", on_conflict="raise")),
        NewJob("send", key="k", max_waiting=1),
        NewJob("send", key="k", max_waiting=1, on_full="wait"),
    ],
)
def test_what_only_a_waiting_producer_can_be_told_is_refused(job: NewJob) -> None:
    with pytest.raises(OptionError, match="nobody waits for a job of an outbox"):
        stored(job)


def test_what_cannot_be_added_is_refused_when_it_is_stored() -> None:
    with pytest.raises(OptionError, match="attempts"):
        stored(NewJob("send", attempts=0))
    with pytest.raises(EncodeError):
        stored(NewJob("send", object()))
    with pytest.raises(EncodeError, match="max_payload"):
        stored(NewJob("send", "x" * 2_000_000))
    with pytest.raises(OptionError, match="queue"):
        store_job("a{b}", NewJob("send"), RULES, headers={})


@pytest.mark.parametrize("body", [b"", b"\x90", b"garbage", msgspec.msgpack.encode([1, "n"])])
def test_bytes_that_hold_no_job_are_told_without_quoting_them(body: bytes) -> None:
    with pytest.raises(DecodeError) as caught:
        read_request(body, 0)
    assert "garbage" not in str(caught.value)


def test_a_job_of_a_later_version_is_refused() -> None:
    values = msgspec.msgpack.decode(stored(NewJob("send")))
    with pytest.raises(DecodeError, match="version 2"):
        read_request(msgspec.msgpack.encode([2, *values[1:]]), 0)


def test_what_a_later_release_appends_is_ignored() -> None:
    values = msgspec.msgpack.decode(stored(NewJob("send", job_id="it")))
    found = read_request(msgspec.msgpack.encode([*values, "new"]), 0)
    assert found.job_id == "it"
