"""A schedule between what a user said and what the wire carries."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgpack
import pytest

from tampu import Backoff, Cron, Every, Missed, OptionError, Overlap, ScheduleSettings, TimeWindow
from tampu.errors import DecodeError
from tampu.schedules.storing import ArmedSchedule, NewSchedule, read_schedule
from tampu.util.clock import instant
from tampu.wire.schedule import (
    CronPattern,
    EveryPattern,
    ScheduleSpec,
    encode_spec,
    slot_of_payload,
)
from tests.golden.chasquimq import golden

NOW_MS = 1_794_725_043_642
HOUR_MS = 3_600_000
NIL = b"\xc0"


def wanted(rule: Every | Cron, **options: Any) -> NewSchedule:  # noqa: ANN401 - as the test gives them
    return NewSchedule("tick", rule, NIL, ScheduleSettings(**options))


def placed(want: NewSchedule, now_ms: int = NOW_MS, *, next_ms: int | None = None) -> ArmedSchedule:
    written = want.encode(None, now_ms)
    repeat = read_schedule(written.spec, written.own)
    return ArmedSchedule(repeat, written.next_ms if next_ms is None else next_ms)


class TestFirstInstant:
    def test_an_interval_begins_one_interval_from_now(self) -> None:
        assert wanted(Every("1h")).encode(None, NOW_MS).next_ms == NOW_MS + HOUR_MS

    def test_a_start_ahead_is_itself_the_first_instant_of_an_interval(self) -> None:
        start = instant(NOW_MS + 5_000)
        assert wanted(Every("1h"), start=start).encode(None, NOW_MS).next_ms == NOW_MS + 5_000

    def test_a_start_that_has_passed_anchors_the_interval(self) -> None:
        start = instant(NOW_MS - HOUR_MS - 1)
        first = wanted(Every("1h"), start=start).encode(None, NOW_MS).next_ms
        assert first == NOW_MS - 1 + HOUR_MS

    def test_an_anchor_is_kept_whatever_the_start(self) -> None:
        rule = Every("1h", anchor=instant(7))
        start = instant(10 * HOUR_MS)
        assert wanted(rule, start=start).encode(None, 0).next_ms == 10 * HOUR_MS + 7

    def test_an_anchor_before_1970_can_be_written(self) -> None:
        rule = Every("1h", anchor=datetime(1960, 1, 1, 0, 20, tzinfo=UTC))
        assert placed(wanted(rule), 0).next_ms == HOUR_MS // 3

    def test_a_cron_rule_may_match_at_the_start_and_not_now(self) -> None:
        rule = Cron("0 * * * *")
        assert wanted(rule).encode(None, HOUR_MS).next_ms == 2 * HOUR_MS
        start = instant(5 * HOUR_MS)
        assert wanted(rule, start=start).encode(None, 0).next_ms == 5 * HOUR_MS

    def test_cron_instants_are_whole_seconds(self) -> None:
        assert wanted(Cron("* * * * * *")).encode(None, NOW_MS).next_ms % 1000 == 0

    def test_an_end_before_the_first_instant_is_refused(self) -> None:
        end = instant(NOW_MS + HOUR_MS - 1)
        with pytest.raises(OptionError) as refusal:
            wanted(Every("1h"), end=end).encode(None, NOW_MS)
        assert refusal.value.option == "end"
        wanted(Every("1h"), end=instant(NOW_MS + HOUR_MS)).encode(None, NOW_MS)


class TestKeepingItsPlace:
    def test_the_same_rule_keeps_its_next_instant_and_its_grid(self) -> None:
        place = placed(wanted(Every("1h")))
        again = wanted(Every("1h"), limit=3, missed=Missed.ONCE)
        assert again.keeps(place)
        written = again.encode(place, NOW_MS + 1000)
        assert written.next_ms == place.next_ms
        rule = read_schedule(written.spec, written.own).rule
        assert rule.next_ms(place.next_ms) == place.next_ms + HOUR_MS

    @pytest.mark.parametrize(
        "other",
        [
            wanted(Every("2h")),
            wanted(Cron("0 * * * *")),
            wanted(Every("1h"), start=instant(NOW_MS)),
            wanted(Every("1h", anchor=instant(NOW_MS + 1))),
        ],
    )
    def test_another_rule_or_start_does_not(self, other: NewSchedule) -> None:
        assert not other.keeps(placed(wanted(Every("1h"))))

    def test_an_anchor_on_the_same_grid_is_the_same_rule(self) -> None:
        place = placed(wanted(Every("1h")))
        assert wanted(Every("1h", anchor=instant(NOW_MS - 5 * HOUR_MS))).keeps(place)

    def test_another_zone_is_another_rule_and_none_is_utc(self) -> None:
        slot = slot_of_payload(NIL)
        spec = ScheduleSpec(
            key="k", job_name="j", pattern=CronPattern("0 9 * * *", None), slot=slot
        )
        place = ArmedSchedule(read_schedule(encode_spec(spec), None), NOW_MS)
        assert wanted(Cron("0 9 * * *")).keeps(place)
        assert not wanted(Cron("0 9 * * *", tz="Europe/Berlin")).keeps(place)

    def test_the_grid_of_a_peer_s_interval_runs_through_its_next_instant(self) -> None:
        slot = slot_of_payload(NIL)
        spec = ScheduleSpec(key="k", job_name="j", pattern=EveryPattern(HOUR_MS), slot=slot)
        place = ArmedSchedule(read_schedule(encode_spec(spec), None), NOW_MS + 17)
        again = wanted(Every("1h"))
        assert again.keeps(place)
        written = again.encode(place, NOW_MS)
        assert read_schedule(written.spec, written.own).rule.next_ms(NOW_MS) == NOW_MS + 17

    def test_an_end_before_the_kept_instant_is_refused(self) -> None:
        place = placed(wanted(Every("1h")))
        with pytest.raises(OptionError, match="next instant"):
            wanted(Every("1h"), end=instant(NOW_MS)).encode(place, NOW_MS)


def test_every_setting_comes_back() -> None:
    settings = ScheduleSettings(
        missed=Missed.all(max=7).within(grace=5, catch_up="1h"),
        overlap=Overlap.QUEUE_ONE,
        window=TimeWindow(tz="Asia/Tokyo", days="mon-fri", segments=[("22:00", "06:00")]),
        limit=9,
        start=instant(NOW_MS),
        end=instant(NOW_MS + 10 * HOUR_MS),
        attempts=3,
        backoff=Backoff.exponential(1, max=9, multiplier=3, jitter=2),
        timeout=timedelta(seconds=7),
    )
    written = NewSchedule("tick", Cron("0 9 * * *"), NIL, settings).encode(None, NOW_MS)
    assert read_schedule(written.spec, written.own).settings() == settings
    jittered = ScheduleSettings(jitter=timedelta(seconds=3))
    written = NewSchedule("tick", Every(5), NIL, jittered).encode(None, NOW_MS)
    assert read_schedule(written.spec, written.own).settings() == jittered


def test_a_derived_key_that_is_too_long_is_refused() -> None:
    with pytest.raises(OptionError) as refusal:
        _ = NewSchedule("n" * 1020, Every(1), NIL, ScheduleSettings()).key
    assert refusal.value.option == "key"


@pytest.mark.parametrize("record", golden("specs"))
def test_every_captured_spec_of_the_peer_can_be_opened(record: dict[str, Any]) -> None:
    repeat = read_schedule(bytes.fromhex(record["spec_hex"]), None)
    assert repeat.spec.key == record["key"]
    assert repeat.instants(NOW_MS).next_ms(NOW_MS) is not None or record["end_before_ms"]
    assert repeat.settings().limit == record["limit"]


def _spec(**changes: object) -> bytes:
    fields: dict[str, Any] = {
        "key": "k",
        "job_name": "j",
        "pattern": EveryPattern(1000),
        "slot": slot_of_payload(NIL),
    }
    return encode_spec(ScheduleSpec(**(fields | changes)))


@pytest.mark.parametrize(
    ("spec", "own"),
    [
        (None, None),
        (b"\xc1", None),
        (_spec(pattern=CronPattern("60 * * * *", None)), None),
        (_spec(pattern=CronPattern("* * * * *", "Mars/Olympus")), None),
        (_spec(pattern=EveryPattern(2**63)), None),
        (_spec(slot=b""), None),
        (_spec(slot=b"\xc7\x01\x05x"), None),
        (_spec(start_after_ms=2**63), None),
        (_spec(end_before_ms=2**63), None),
        (_spec(), b"nonsense"),
        (_spec(), msgpack.packb({"of": 5})),
    ],
)
def test_undecodable_or_unsupported_schedules_are_refused(
    spec: bytes | None, own: bytes | None
) -> None:
    with pytest.raises(DecodeError):
        read_schedule(spec, own)
