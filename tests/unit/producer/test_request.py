"""One job to add: its options are checked, its times worked out."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from tampu.backoff import Backoff
from tampu.errors import EncodeError, OptionError, TampuError
from tampu.job import NewJob
from tampu.producer.request import JobRules, Request, new_job, plain_columns, request_for
from tampu.util.clock import instant
from tampu.wire.entry import decode_member
from tampu.wire.envelope import RetryOverride, decode_envelope
from tampu.wire.extras import NO_EXTRAS, Extras, decode_extras
from tampu.wire.keys import QueueKeys
from tampu.wire.payload import decode_payload

NOW_MS = 1_794_725_043_642
RULES = JobRules(max_payload=1024, max_delay_ms=30 * 86_400_000, unique_ms=3_600_000)
KEYS = QueueKeys("emails")


def make_request(name: str = "welcome", data: object = None, **options: Any) -> Request:  # noqa: ANN401
    return request_for(NewJob(name, data, **options), RULES, NOW_MS)


class TestDueTime:
    @pytest.mark.parametrize(
        ("options", "due", "delay_ms"),
        [
            ({}, b"", 0),
            ({"delay": 0}, b"", 0),
            ({"delay": "0s"}, b"", 0),
            ({"delay": 0.0004}, b"", 0),
            ({"delay": 1.5}, b"+1500", 1500),
            ({"delay": "1h"}, b"+3600000", 3_600_000),
            ({"delay": "30d"}, b"+2592000000", 30 * 86_400_000),
            ({"at": instant(NOW_MS)}, b"", 0),
            ({"at": instant(NOW_MS - 60_000)}, b"", 0),
            ({"at": datetime(1999, 1, 1, tzinfo=UTC)}, b"", 0),
            ({"at": instant(NOW_MS + 5000)}, b"%d" % (NOW_MS + 5000), 5000),
        ],
    )
    def test_a_job_is_due_now_or_by_the_right_clock(
        self, options: dict[str, Any], due: bytes, delay_ms: int
    ) -> None:
        request = make_request(**options)
        assert (request.due, request.delay_ms) == (due, delay_ms)

    def test_an_instant_is_the_same_in_every_zone(self) -> None:
        at = instant(NOW_MS + 5000).astimezone(timezone(timedelta(hours=-7)))
        assert make_request(at=at).due == b"%d" % (NOW_MS + 5000)


class TestIds:
    @pytest.mark.parametrize(
        ("options", "marker_s"),
        [
            ({}, b"3601"),
            ({"delay": 60}, b"3660"),
            ({"delay": 0.5}, b"3601"),
            ({"delay": 1.999}, b"3602"),
            ({"at": instant(NOW_MS + 119_999)}, b"3720"),
            ({"unique_for": "2h"}, b"7201"),
            ({"unique_for": 0.001}, b"2"),
            ({"unique_for": "1d", "delay": "1d"}, b"172800"),
        ],
    )
    def test_an_id_stays_taken_until_after_the_due_time(
        self, options: dict[str, Any], marker_s: bytes
    ) -> None:
        assert make_request(job_id="a", **options).marker_s == marker_s

    def test_only_a_delayed_job_has_an_index_by_id(self) -> None:
        now, later = make_request(job_id="ä"), make_request(job_id="ä", delay=5)
        kept = [KEYS.result("ä"), KEYS.failure("ä")]
        assert (now.keys(KEYS, "ä"), now.index_s) == ([KEYS.marker("ä"), *kept], b"")
        assert later.keys(KEYS, "ä") == [KEYS.marker("ä"), KEYS.index("ä"), *kept]
        assert later.index_s == later.marker_s == b"3605"

    def test_a_job_without_a_job_id_has_no_marker_but_an_index_while_it_is_delayed(self) -> None:
        now, later = make_request(), make_request(delay=5)
        assert (now.marker_s, now.index_s, now.keys(KEYS, "made")) == (b"", b"", [])
        assert (later.marker_s, later.index_s) == (b"", b"3605")
        assert later.keys(KEYS, "made") == [KEYS.index("made")]


class TestEncoding:
    def test_a_job_that_runs_now(self) -> None:
        request = make_request(data={"a": 1}, attempts=3, timeout=5)
        body, name, extras, due, marker_s, index_s, _ = request.encode("id1", NOW_MS)
        envelope = decode_envelope(body)
        assert (envelope.id, envelope.created_at_ms, envelope.attempt) == ("id1", NOW_MS, 0)
        assert decode_payload(envelope.payload) == {"a": 1}
        assert envelope.retry == RetryOverride(3, None)
        assert decode_extras(extras) == Extras(timeout_ms=5000)
        assert (name, due, marker_s, index_s) == (b"welcome", b"", b"", b"")

    def test_a_delayed_job_carries_name_and_extras_in_its_member(self) -> None:
        request = make_request(delay=5, tenant="t", job_id="a")
        body, name, extras, due, marker_s, index_s, _ = request.encode("a", NOW_MS)
        member = decode_member(body)
        assert (member.name, decode_extras(member.extras)) == ("welcome", Extras(tenant="t"))
        assert decode_envelope(member.envelope).id == "a"
        assert (name, extras, due) == (b"", b"", b"+5000")
        assert (marker_s, index_s) == (b"3605", b"3605")

    def test_attempts_and_backoff_are_sent_complete(self) -> None:
        backoff = Backoff.exponential(0.1, max=30, multiplier=2, jitter=0.1)
        retry = make_request(attempts=2**32 - 1, backoff=backoff).retry
        assert retry == RetryOverride(2**32 - 1, backoff.to_wire())
        assert make_request(backoff=backoff).retry == RetryOverride(None, backoff.to_wire())

    def test_a_deadline_counts_from_the_due_time(self) -> None:
        assert make_request(expires=5).extras.deadline_ms == NOW_MS + 5000
        assert make_request(expires=5, delay=10).extras.deadline_ms == NOW_MS + 15_000
        assert make_request(expires=5, at=instant(NOW_MS - 9)).extras.deadline_ms == NOW_MS + 5000

    def test_empty_extras_are_not_written(self) -> None:
        request = make_request(headers={}, attempts=1)
        assert request.extras == NO_EXTRAS
        assert request.encode("a", NOW_MS)[2] == b""


class TestPlainColumns:
    def test_jobs_without_options_become_columns(self) -> None:
        columns = plain_columns([NewJob("a", 1), NewJob("b")])
        assert columns is not None
        assert (columns.names, columns.datas) == (("a", "b"), (1, None))

    @pytest.mark.parametrize(
        "options", [{"delay": 0}, {"headers": {}}, {"tenant": ""}, {"attempts": 0}, {"job_id": "x"}]
    )
    def test_one_option_anywhere_rules_out_columns(self, options: dict[str, Any]) -> None:
        assert plain_columns([NewJob("a"), NewJob("a", None, **options)]) is None

    def test_anything_but_a_new_job_is_refused(self) -> None:
        stranger: Any = ("welcome", None)
        assert plain_columns([stranger]) is None
        with pytest.raises(OptionError, match=r"^Invalid jobs "):
            request_for(stranger, RULES, NOW_MS)


BAD: list[tuple[str, Any]] = [
    ("delay", -1),
    ("delay", float("nan")),
    ("delay", float("inf")),
    ("delay", "soon"),
    ("delay", True),
    ("delay", timedelta(seconds=-1)),
    ("delay", "31d"),
    ("at", datetime(2030, 1, 1)),  # noqa: DTZ001 - naive on purpose
    ("at", "2030-01-01"),
    ("at", NOW_MS),
    ("at", instant(NOW_MS + 31 * 86_400_000)),
    ("job_id", ""),
    ("job_id", "  "),
    ("job_id", "a\nb"),
    ("job_id", "x" * 513),
    ("job_id", "\ud800"),
    ("job_id", 5),
    ("job_id", b"x"),
    ("unique_for", 0),
    ("unique_for", -5),
    ("unique_for", "a while"),
    ("attempts", 0),
    ("attempts", -1),
    ("attempts", 2**32),
    ("attempts", 1.0),
    ("attempts", True),
    ("attempts", "3"),
    ("backoff", 5),
    ("backoff", {"kind": "fixed"}),
    ("backoff", "exponential"),
    ("timeout", 0),
    ("timeout", -1),
    ("timeout", "never"),
    ("expires", 0),
    ("expires", float("nan")),
    ("headers", {"a": 1}),
    ("headers", {1: "a"}),
    ("headers", [("a", "b")]),
    ("headers", "a=b"),
    ("tenant", 5),
    ("tenant", b"x"),
]


@pytest.mark.parametrize(("option", "given"), BAD)
def test_an_invalid_option_is_named(option: str, given: object) -> None:
    others = {"job_id": "a"} if option == "unique_for" else {}
    with pytest.raises(OptionError, match=rf"^Invalid {option} ") as refused:
        make_request(**{option: given}, **others)  # type: ignore[arg-type]
    assert refused.value.option == option


@pytest.mark.parametrize("name", ["x" * 257, "ä" * 129, "\ud800", 5, None, b"x", ["x"]])
def test_an_invalid_name_is_refused(name: object) -> None:
    with pytest.raises(OptionError, match=r"^Invalid name "):
        make_request(name)  # type: ignore[arg-type]


def test_options_that_exclude_or_require_each_other() -> None:
    with pytest.raises(OptionError, match=r"^Invalid at .*: cannot be combined with delay\.$"):
        make_request(delay=0, at=instant(NOW_MS))
    with pytest.raises(OptionError, match=r"^Invalid unique_for 5: requires a job_id\.$"):
        make_request(unique_for=5)
    with pytest.raises(
        OptionError, match=r"^Invalid retries 5: unknown option; a job accepts delay, at, "
    ):
        new_job("a", None, {"retries": 5})  # type: ignore[typeddict-unknown-key]


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (object(), {}),
        (2**64, {}),
        ("x" * 1024, {}),
        (None, {"headers": {"a": "\ud800"}}),
        (None, {"headers": {"a": "x" * 70_000}}),
        (None, {"tenant": "\ud800"}),
    ],
)
def test_data_that_cannot_be_encoded_is_refused(data: object, options: dict[str, Any]) -> None:
    with pytest.raises(EncodeError):
        make_request(data=data, **options)


def test_an_error_quotes_neither_data_nor_headers() -> None:
    for options in ({"headers": {"token": b"s3cret"}}, {"data": {"s3cret", object()}}):
        with pytest.raises(TampuError) as refused:
            make_request(**options)
        assert "s3cret" not in str(refused.value)
