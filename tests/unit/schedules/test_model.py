"""What may be said of a schedule."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tampu import At, Backoff, Cron, Every, Missed, OptionError, Overlap, ScheduleSettings
from tampu.schedules.model import Schedule, ScheduleOptions, check_rule
from tampu.timing import Rule
from tampu.util.options import parse_options

NOON = datetime(2027, 1, 1, 12, tzinfo=UTC)

BAD: list[tuple[str, dict[str, Any]]] = [
    ("key", {"key": ""}),
    ("key", {"key": "a\nb"}),
    ("key", {"key": 7}),
    ("missed", {"missed": "skip"}),
    ("overlap", {"overlap": "skip"}),
    ("overlap", {"overlap": Overlap.CANCEL_RUNNING}),
    ("window", {"window": "09:00-17:00"}),
    ("limit", {"limit": 0}),
    ("limit", {"limit": True}),
    ("limit", {"limit": 1.5}),
    ("start", {"start": datetime(2027, 1, 1)}),  # noqa: DTZ001 - that is what is refused
    ("start", {"start": datetime(1969, 1, 1, tzinfo=UTC)}),
    ("end", {"end": "tomorrow"}),
    ("end", {"start": NOON, "end": NOON - timedelta(1)}),
    ("jitter", {"jitter": 0}),
    ("jitter", {"jitter": "soon"}),
    ("jitter", {"jitter": 1, "overlap": Overlap.SKIP}),
    ("attempts", {"attempts": 0}),
    ("backoff", {"backoff": 5}),
    ("timeout", {"timeout": 0}),
    ("evry", {"evry": 1}),
]


@pytest.mark.parametrize(("option", "given"), BAD)
def test_an_invalid_option_is_named(option: str, given: dict[str, Any]) -> None:
    with pytest.raises(OptionError) as refusal:
        parse_options(ScheduleSettings, "a schedule", given)
    assert refusal.value.option == option


def test_the_refusal_of_cancelling_says_why() -> None:
    with pytest.raises(OptionError, match="not supported for a queue's schedules"):
        ScheduleSettings(overlap=Overlap.CANCEL_RUNNING)


@pytest.mark.parametrize("rule", [At(NOON), "* * * * *", 60, None])
def test_only_intervals_and_cron_rules_can_be_kept(rule: Rule) -> None:
    with pytest.raises(OptionError, match=r"add\(at=") as refusal:
        check_rule(rule, ScheduleSettings())
    assert refusal.value.option == "rule"


def test_jitter_may_fill_the_interval_and_no_more() -> None:
    check_rule(Every(10), ScheduleSettings(jitter=10))
    check_rule(Cron("* * * * *"), ScheduleSettings(jitter=3600))
    with pytest.raises(OptionError, match="longer than the interval"):
        check_rule(Every(10), ScheduleSettings(jitter=10.001))


def test_options_and_settings_are_the_same() -> None:
    fields = list(ScheduleSettings.__dataclass_fields__)
    assert fields == list(ScheduleOptions.__annotations__)


def test_all_of_them_together_can_be() -> None:
    ScheduleSettings(
        key="k",
        missed=Missed.all(max=3),
        limit=2,
        start=NOON,
        end=NOON,
        jitter="5s",
        attempts=3,
        backoff=Backoff.fixed(1),
        timeout="1m",
    )


def test_the_data_of_a_schedule_is_not_shown() -> None:
    shown = repr(Schedule(key="k", raw_key=b"k", data="secret", rule=Every(1)))
    assert shown == "<Schedule 'k' Every('1s')>"
    assert "secret" not in shown
