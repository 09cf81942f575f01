"""Alerts: declared with checks, and decided without a server."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tampu.errors import OptionError
from tampu.metrics.alerts import (
    MAX_ALERTS,
    Alert,
    Decision,
    Fire,
    Keep,
    Resolve,
    bind_alerts,
    check_alerts,
    evaluate,
    forget,
    notice_of,
)
from tampu.metrics.conditions import Observation, ServerMemory
from tampu.metrics.history import Bucket, Figures
from tampu.wire.alerts import (
    AlertKind,
    AlertPhase,
    StoredAlert,
    decode_notice,
    decode_state,
    encode_alert,
)
from tampu.wire.history import Gauges

NOW = 1_800_000_000_000
SECOND = 1000
WAITING_LONG = Observation(gauges=Gauges(waiting=3, oldest_ms=301_000))
WAITING_SHORT = Observation(gauges=Gauges(waiting=3, oldest_ms=2_000))
OLDEST = Alert.oldest("emails", "5m", for_="30s")


def minutes(*figures: Figures, task: str = "send") -> Observation:
    """The last minutes, the present one last."""
    return Observation(
        minutes=[Bucket(number * 60_000, {task: each}) for number, each in enumerate(figures)]
    )


def holds(alert: Alert, seen: Observation) -> bool:
    """Whether the alert fires at once on what is seen."""
    reading = alert.condition.read(seen)
    assert reading is not None
    return reading.holds


class TestConditions:
    def test_the_oldest_waiting_job(self) -> None:
        assert holds(OLDEST, WAITING_LONG)
        assert not holds(OLDEST, WAITING_SHORT)
        assert not holds(OLDEST, Observation(gauges=Gauges(oldest_ms=300_000)))

    @pytest.mark.parametrize(
        ("gauges", "overdue", "workers", "expected"),
        [
            (Gauges(waiting=1), 0, 0, True),
            (Gauges(active=1), 0, 0, True),
            (Gauges(delayed=5), 2, 0, True),
            (Gauges(delayed=5), 0, 0, False),
            (Gauges(waiting=9), 0, 1, False),
            (Gauges(), 0, 0, False),
        ],
    )
    def test_jobs_but_no_worker(
        self, gauges: Gauges, overdue: int, workers: int, *, expected: bool
    ) -> None:
        seen = Observation(gauges=gauges, overdue=overdue, workers=workers)
        assert holds(Alert.no_workers("emails"), seen) is expected

    def test_dead_letters_that_grow_in_the_time_given(self) -> None:
        alert = Alert.dead_growing("emails", more_than=10, within="2m")
        assert holds(alert, minutes(Figures(dead=5), Figures(dead=5), Figures(dead=1)))
        assert not holds(alert, minutes(Figures(dead=5), Figures(dead=5), Figures()))
        assert not holds(alert, minutes(Figures(dead=99), Figures(), Figures(), Figures(dead=10)))

    def test_the_failure_rate_of_a_task(self) -> None:
        alert = Alert.failure_rate("emails", "send", above=0.2, within="5m", at_least=20)
        assert holds(alert, minutes(Figures(done=15, failed=5), Figures(failed=1)))
        assert not holds(alert, minutes(Figures(done=16, failed=4)))  # not above
        assert not holds(alert, minutes(Figures(failed=19)))  # too few to say
        assert not holds(alert, minutes(Figures(failed=50), task="other"))

    def test_the_failure_rate_of_all_jobs(self) -> None:
        alert = Alert.failure_rate("emails", above=0, at_least=1)
        assert holds(alert, minutes(Figures(failed=1), task="any"))

    def test_a_schedule_that_is_late(self) -> None:
        any_one = Alert.schedule_missed("emails", by="1m")
        one = Alert.schedule_missed("emails", "digest", by="1m")
        assert holds(any_one, Observation(late={"cleanup": 60_001, "digest": 5}))
        assert not holds(one, Observation(late={"cleanup": 60_001, "digest": 5}))
        assert holds(one, Observation(late={"digest": 61_000}))
        assert not holds(any_one, Observation(late={}))

    def test_fires_that_a_schedule_has_missed_lately(self) -> None:
        any_one = Alert.schedule_missed("emails", within="2m")
        one = Alert.schedule_missed("emails", "digest", within="2m")
        missed = [{"old": 9}, {}, {"digest": 3, "cleanup": 1}, {"digest": 1}]
        past = [Bucket(at * 60_000, missed=each) for at, each in enumerate(missed)]
        seen = Observation(late={}, minutes=past)
        assert holds(any_one, seen)
        assert holds(one, seen)
        assert not holds(Alert.schedule_missed("emails", "old", within="2m"), seen)
        assert not holds(any_one, Observation(late={}, minutes=past[:2] + [Bucket(0)] * 3))
        fired = evaluate(one, seen, StoredAlert(one.kind, since_ms=5), now_ms=NOW)
        assert fired.state.sentence == (
            "Queue 'emails': schedule 'digest' missed 4 fires within 2m."
        )
        fired = evaluate(any_one, seen, StoredAlert(one.kind, since_ms=5), now_ms=NOW)
        assert fired.state.sentence == (
            "Queue 'emails': schedule 'digest' missed 4 fires within 2m, "
            "and 1 other schedule missed some too."
        )

    def test_a_schedule_that_is_late_now_comes_before_what_was_missed(self) -> None:
        alert = Alert.schedule_missed("emails", by="1m")
        past = [Bucket(0, missed={"": 2})]
        reading = alert.condition.read(Observation(late={"tick": 61_000}, minutes=past))
        assert reading is not None
        assert reading.text == "schedule 'tick' should have fired 1m1s ago; the limit is 1m"
        reading = alert.condition.read(Observation(late={"tick": 5}, minutes=past))
        assert reading is not None
        assert reading.text == "a schedule missed 2 fires within 10m"

    @pytest.mark.parametrize(
        ("memory", "expected"),
        [
            (ServerMemory(91, 100, "noeviction"), True),
            (ServerMemory(90, 100, "noeviction"), False),
            (ServerMemory(91, 0, "noeviction", machine=100), True),
            (ServerMemory(91, 1000, "noeviction", machine=100), False),
        ],
    )
    def test_the_memory_of_the_server(self, memory: ServerMemory, *, expected: bool) -> None:
        assert holds(Alert.server_memory(above=0.9), Observation(memory=memory)) is expected

    @pytest.mark.parametrize(
        ("policy", "limit", "expected"),
        [("allkeys-lru", 100, True), ("allkeys-lru", 0, False), ("noeviction", 100, False)],
    )
    def test_a_server_that_deletes_jobs(self, policy: str, limit: int, *, expected: bool) -> None:
        seen = Observation(memory=ServerMemory(1, limit, policy))
        assert holds(Alert.eviction(), seen) is expected

    def test_a_loop_that_lags(self) -> None:
        alert = Alert.loop_lag("emails", above="1s")
        assert holds(alert, Observation(lags={"a": 3.0, "b": 1000.5}))
        assert not holds(alert, Observation(lags={"a": 3.0, "b": 1000}))
        assert not holds(alert, Observation(lags={}))

    @pytest.mark.parametrize(
        "alert",
        [
            OLDEST,
            Alert.no_workers("emails"),
            Alert.dead_growing("emails"),
            Alert.failure_rate("emails"),
            Alert.schedule_missed("emails"),
            Alert.server_memory(queue="emails"),
            Alert.eviction(queue="emails"),
            Alert.loop_lag("emails"),
        ],
        ids=lambda alert: str(alert.kind),
    )
    def test_what_is_not_known_changes_nothing(self, alert: Alert) -> None:
        state = StoredAlert(alert.kind, since_ms=5)
        assert evaluate(alert, Observation(), state, now_ms=NOW) == Keep(state)

    def test_a_sentence_names_the_queue_the_value_and_the_limit(self) -> None:
        fired = evaluate(Alert.oldest("emails", "5m", for_=0), WAITING_LONG, None, now_ms=NOW)
        assert fired.state.sentence == (
            "Queue 'emails': the oldest waiting job has waited 5m1s; the limit is 5m."
        )
        alert = Alert.failure_rate("emails", "send", for_=0)
        failed = evaluate(alert, minutes(Figures(done=60, failed=40)), None, now_ms=NOW)
        assert failed.state.sentence == (
            "Queue 'emails': 40 % of 100 attempts of 'send' failed within 10m; the limit is 20 %."
        )


class TestEvaluating:
    def test_it_fires_when_the_condition_has_held_for_the_time_given(self) -> None:
        first = evaluate(OLDEST, WAITING_LONG, None, now_ms=NOW)
        assert first == Keep(StoredAlert(AlertKind.OLDEST, since_ms=NOW))
        early = evaluate(OLDEST, WAITING_LONG, first.state, now_ms=NOW + 29_999)
        assert early == first
        fired = evaluate(OLDEST, WAITING_LONG, first.state, now_ms=NOW + 30_000)
        assert isinstance(fired, Fire)
        assert (fired.state.since_ms, fired.state.fired_ms) == (NOW, NOW + 30_000)
        assert (fired.state.value, fired.state.limit) == (301.0, 300.0)

    def test_a_condition_that_ceases_to_hold_starts_again(self) -> None:
        first = evaluate(OLDEST, WAITING_LONG, None, now_ms=NOW).state
        ceased = evaluate(OLDEST, WAITING_SHORT, first, now_ms=NOW + 20_000)
        assert ceased == Keep(StoredAlert(AlertKind.OLDEST))
        again = evaluate(OLDEST, WAITING_LONG, ceased.state, now_ms=NOW + 40_000)
        assert isinstance(again, Keep)

    def test_it_resolves_when_the_condition_has_not_held_for_as_long(self) -> None:
        state = StoredAlert(AlertKind.OLDEST, since_ms=NOW - 60_000, fired_ms=NOW)
        clear = evaluate(OLDEST, WAITING_SHORT, state, now_ms=NOW + 1)
        assert isinstance(clear, Keep)
        held = evaluate(OLDEST, WAITING_LONG, clear.state, now_ms=NOW + 20_000)
        assert held == Keep(state)
        resolved = evaluate(OLDEST, WAITING_SHORT, clear.state, now_ms=NOW + 30_001)
        assert isinstance(resolved, Resolve)
        assert resolved.state.phase is AlertPhase.RESOLVED
        assert resolved.state.sentence.startswith("Resolved. Queue 'emails': ")

    def test_it_fires_again_after_it_has_resolved_with_another_id(self) -> None:
        alert = Alert.oldest("emails", "5m", for_=0)
        first = evaluate(alert, WAITING_LONG, None, now_ms=NOW)
        over = evaluate(alert, WAITING_SHORT, first.state, now_ms=NOW)
        second = evaluate(alert, WAITING_LONG, over.state, now_ms=NOW - 5)  # the clock went back
        assert isinstance(first, Fire)
        assert isinstance(over, Resolve)
        assert isinstance(second, Fire)
        told = [
            notice_of("k", "emails", first, before=first.state),
            notice_of("k", "emails", over, before=first.state),
            notice_of("k", "emails", second, before=over.state),
        ]
        assert len({each.id for each in told}) == 3
        assert [str(each.state) for each in told] == ["fired", "resolved", "fired"]
        assert told[1].since == told[0].since == datetime.fromtimestamp(NOW / 1000, UTC)

    def test_an_alert_that_is_no_longer_declared_resolves(self) -> None:
        fired = StoredAlert(AlertKind.OLDEST, since_ms=1, fired_ms=NOW)
        decision = forget("oldest", "emails", fired, now_ms=NOW + 1)
        assert isinstance(decision, Resolve)
        assert "no longer declared" in decision.state.sentence
        pending = StoredAlert(AlertKind.OLDEST, since_ms=1)
        assert forget("oldest", "emails", pending, now_ms=NOW) == Keep(
            StoredAlert(AlertKind.OLDEST)
        )

    @given(
        seen=st.lists(st.sampled_from([WAITING_LONG, WAITING_SHORT, Observation()]), max_size=60),
        steps=st.lists(st.integers(-5, 40), min_size=60, max_size=60),
        for_s=st.sampled_from([0, 10, 30]),
    )
    def test_whatever_is_seen_fires_and_resolves_alternate(
        self, seen: list[Observation], steps: list[int], for_s: int
    ) -> None:
        alert = Alert.oldest("emails", "5m", for_=for_s)
        state, now_ms = None, NOW
        told: list[Decision] = []
        for each, step in zip(seen, steps, strict=False):
            now_ms += step * SECOND
            decision = evaluate(alert, each, state, now_ms=now_ms)
            if not isinstance(decision, Keep):
                told.append(decision)
            # What is stored is what the next leader reads.
            state = decode_state(encode_alert(decision.state))
        assert [type(each) for each in told] == [Fire, Resolve] * (len(told) // 2) + [Fire] * (
            len(told) % 2
        )
        fired = [each.state.fired_ms for each in told if isinstance(each, Fire)]
        assert len(set(fired)) == len(fired)


class TestDeclaring:
    def test_keys_are_derived_and_can_be_chosen(self) -> None:
        assert Alert.oldest("emails", "5m").key == "oldest"
        assert Alert.failure_rate("emails", "send").key == "failure-rate:send"
        assert Alert.schedule_missed("emails", "digest").key == "schedule-missed:digest"
        assert Alert.oldest("emails", "1h", key="very-old").key == "very-old"

    @pytest.mark.parametrize(
        ("option", "make"),
        [
            ("above", lambda: Alert.oldest("emails", "soon")),
            ("above", lambda: Alert.oldest("emails", 0)),
            ("queue", lambda: Alert.no_workers("not a queue")),
            ("within", lambda: Alert.dead_growing("emails", within="2h")),
            ("within", lambda: Alert.failure_rate("emails", within="10s")),
            ("more_than", lambda: Alert.dead_growing("emails", more_than=-1)),
            ("above", lambda: Alert.failure_rate("emails", above=1)),
            ("above", lambda: Alert.server_memory(above=90)),
            ("at_least", lambda: Alert.failure_rate("emails", at_least=0)),
            ("for_", lambda: Alert.eviction(for_="x")),
            ("key", lambda: Alert.eviction(key="")),
            ("key", lambda: Alert.eviction(key="k" * 301)),
            ("by", lambda: Alert.schedule_missed("emails", by=0)),
            ("within", lambda: Alert.schedule_missed("emails", within="2h")),
            ("unknown", lambda: Alert.eviction(unknown=1)),  # type: ignore[call-arg]
        ],
    )
    def test_what_cannot_be_is_refused_by_name(self, option: str, make: object) -> None:
        with pytest.raises(OptionError) as refusal:
            make()  # type: ignore[operator]
        assert refusal.value.option == option

    def test_two_alerts_of_a_queue_need_different_keys(self) -> None:
        with pytest.raises(OptionError, match="two alerts of queue 'emails' have this key"):
            check_alerts([OLDEST, Alert.oldest("emails", "1h")])
        check_alerts([OLDEST, Alert.oldest("emails", "1h", key="hour"), Alert.oldest("x", "1h")])

    def test_alerts_of_the_server_get_the_queue_that_is_chosen(self) -> None:
        (bound, own) = bind_alerts([Alert.eviction(), Alert.eviction(queue="b")], "a")
        assert (bound.queue, own.queue) == ("a", "b")
        with pytest.raises(OptionError, match="have this key"):
            bind_alerts([Alert.eviction(), Alert.eviction(queue="a")], "a")

    @pytest.mark.parametrize("given_alerts", [OLDEST, "oldest", ["oldest"], None])
    def test_only_a_list_of_alerts_is_accepted(self, given_alerts: object) -> None:
        with pytest.raises(OptionError):
            check_alerts(given_alerts)

    def test_there_is_a_limit_to_their_number(self) -> None:
        with pytest.raises(OptionError, match="at most 200"):
            check_alerts([Alert.eviction(key=f"k{n}") for n in range(MAX_ALERTS + 1)])


def test_a_notice_survives_its_way_through_the_server() -> None:
    fired = evaluate(Alert.oldest("emails", "5m", for_=0), WAITING_LONG, None, now_ms=NOW)
    assert isinstance(fired, Fire)
    notice = notice_of("oldest", "emails", fired, before=fired.state)
    assert decode_notice(encode_alert(notice)) == notice
    assert notice.at - notice.since == timedelta(0)
    assert notice.id == f"alert:emails:oldest:{NOW}:fired"
