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


def asked(name: str = "welcome", data: object = None, **options: Any) -> Request:  # noqa: ANN401
    return request_for(NewJob(name, data, **options), RULES, NOW_MS)


class TestWhen:
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
    def test_a_job_is_due_at_once_or_by_the_right_clock(
        self, options: dict[str, Any], due: bytes, delay_ms: int
    ) -> None:
        request = asked(**options)
        assert (request.due, request.delay_ms) == (due, delay_ms)

    def test_an_instant_is_the_same_in_every_zone(self) -> None:
        at = instant(NOW_MS + 5000).astimezone(timezone(timedelta(hours=-7)))
        assert asked(at=at).due == b"%d" % (NOW_MS + 5000)


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
    def test_an_id_stays_taken_until_behind_the_due_time(
        self, options: dict[str, Any], marker_s: bytes
    ) -> None:
        assert asked(job_id="a", **options).marker_s == marker_s

    def test_only_a_delayed_job_can_be_found_by_its_id(self) -> None:
        now, later = asked(job_id="ä"), asked(job_id="ä", delay=5)
        kept = [KEYS.result("ä"), KEYS.failure("ä")]
        assert (now.keys(KEYS, "ä"), now.index_s) == ([KEYS.marker("ä"), *kept], b"")
        assert later.keys(KEYS, "ä") == [KEYS.marker("ä"), KEYS.index("ä"), *kept]
        assert later.index_s == later.marker_s == b"3605"

    def test_a_job_without_an_id_has_no_marker_but_can_be_found_while_it_is_delayed(self) -> None:
        now, later = asked(), asked(delay=5)
        assert (now.marker_s, now.index_s, now.keys(KEYS, "made")) == (b"", b"", [])
        assert (later.marker_s, later.index_s) == (b"", b"3605")
        assert later.keys(KEYS, "made") == [KEYS.index("made")]


class TestTexts:
    def test_a_job_that_runs_now(self) -> None:
        request = asked(data={"a": 1}, attempts=3, timeout=5)
        body, name, extras, due, marker_s, index_s = request.texts("id1", NOW_MS)
        envelope = decode_envelope(body)
        assert (envelope.id, envelope.created_at_ms, envelope.attempt) == ("id1", NOW_MS, 0)
        assert decode_payload(envelope.payload) == {"a": 1}
        assert envelope.retry == RetryOverride(3, None)
        assert decode_extras(extras) == Extras(timeout_ms=5000)
        assert (name, due, marker_s, index_s) == (b"welcome", b"", b"", b"")

    def test_a_delayed_job_carries_name_and_extras_in_its_member(self) -> None:
        request = asked(delay=5, tenant="t", job_id="a")
        body, name, extras, due, marker_s, index_s = request.texts("a", NOW_MS)
        member = decode_member(body)
        assert (member.name, decode_extras(member.extras)) == ("welcome", Extras(tenant="t"))
        assert decode_envelope(member.envelope).id == "a"
        assert (name, extras, due) == (b"", b"", b"+5000")
        assert (marker_s, index_s) == (b"3605", b"3605")

    def test_attempts_and_backoff_travel_with_all_their_slots(self) -> None:
        backoff = Backoff.exponential(0.1, max=30, multiplier=2, jitter=0.1)
        retry = asked(attempts=2**32 - 1, backoff=backoff).retry
        assert retry == RetryOverride(2**32 - 1, backoff.to_wire())
        assert asked(backoff=backoff).retry == RetryOverride(None, backoff.to_wire())

    def test_a_deadline_counts_from_when_the_job_is_due(self) -> None:
        assert asked(expires=5).extras.deadline_ms == NOW_MS + 5000
        assert asked(expires=5, delay=10).extras.deadline_ms == NOW_MS + 15_000
        assert asked(expires=5, at=instant(NOW_MS - 9)).extras.deadline_ms == NOW_MS + 5000

    def test_nothing_is_written_for_extras_that_are_empty(self) -> None:
        request = asked(headers={}, attempts=1)
        assert request.extras == NO_EXTRAS
        assert request.texts("a", NOW_MS)[2] == b""


class TestPlain:
    def test_jobs_without_options_come_as_columns(self) -> None:
        columns = plain_columns([NewJob("a", 1), NewJob("b")])
        assert columns is not None
        assert (columns.names, columns.datas) == (("a", "b"), (1, None))

    @pytest.mark.parametrize(
        "options", [{"delay": 0}, {"headers": {}}, {"tenant": ""}, {"attempts": 0}, {"job_id": "x"}]
    )
    def test_one_option_anywhere_makes_them_all_full(self, options: dict[str, Any]) -> None:
        assert plain_columns([NewJob("a"), NewJob("a", None, **options)]) is None

    def test_what_is_no_job_is_left_to_be_refused(self) -> None:
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
def test_an_option_that_cannot_be_is_named(option: str, given: object) -> None:
    others = {"job_id": "a"} if option == "unique_for" else {}
    with pytest.raises(OptionError, match=rf"^Invalid {option} ") as refused:
        asked(**{option: given}, **others)  # type: ignore[arg-type]
    assert refused.value.option == option


@pytest.mark.parametrize("name", ["x" * 257, "ä" * 129, "\ud800", 5, None, b"x", ["x"]])
def test_a_name_that_no_job_can_have_is_refused(name: object) -> None:
    with pytest.raises(OptionError, match=r"^Invalid name "):
        asked(name)  # type: ignore[arg-type]


def test_options_that_exclude_or_need_each_other_are_told() -> None:
    with pytest.raises(OptionError, match=r"^Invalid at .*along with a delay"):
        asked(delay=0, at=instant(NOW_MS))
    with pytest.raises(OptionError, match=r"^Invalid unique_for .*needs a job_id"):
        asked(unique_for=5)
    with pytest.raises(OptionError, match=r"^Invalid retries 5 .*is no option of a job"):
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
def test_what_cannot_be_written_is_told_before_anything_is(
    data: object, options: dict[str, Any]
) -> None:
    with pytest.raises(EncodeError):
        asked(data=data, **options)


def test_an_error_quotes_neither_data_nor_headers() -> None:
    for options in ({"headers": {"token": b"s3cret"}}, {"data": {"s3cret", object()}}):
        with pytest.raises(TampuError) as refused:
            asked(**options)
        assert "s3cret" not in str(refused.value)
