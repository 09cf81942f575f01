import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tampu.errors import OptionError
from tampu.timing import At, Cron, Every, Missed, MissedDecision, MissedKind, Rule, decide_missed
from tampu.timing.policies import FIRES_AT_ONCE
from tampu.util.clock import instant
from tests.effort import cases

YEAR_MS = 365 * 86_400_000
START_MS = int(datetime(2026, 10, 24, tzinfo=UTC).timestamp() * 1000)

HOURLY = Every("1h").anchored(START_MS)
HOUR = 3_600_000
SIX = START_MS + 6 * HOUR


def _hours(*numbers: int) -> tuple[int, ...]:
    return tuple(START_MS + n * HOUR for n in numbers)


def _model(due: list[int], now_ms: int, policy: Missed) -> list[int]:
    """What fires, each instant judged by itself."""
    on_time = [ms for ms in due if now_ms - ms <= policy.grace_ms]
    missed = [ms for ms in due if policy.grace_ms < now_ms - ms <= policy.catch_up_ms]
    match policy.kind:
        case MissedKind.SKIP:
            return on_time
        case MissedKind.ONCE:
            return on_time or missed[-1:]
        case MissedKind.ALL:
            return missed[-policy.max :] + on_time


def _due(rule: Rule, due_ms: int, now_ms: int) -> list[int]:
    found, at_ms = [], rule.anchored(due_ms).next_ms(due_ms)
    while at_ms is not None and at_ms <= now_ms:
        found.append(at_ms)
        at_ms = rule.anchored(due_ms).next_ms(at_ms)
    return [due_ms, *found]


policies = st.builds(
    lambda make, grace, more: make().within(
        grace=grace, **({} if make() == Missed.SKIP else {"catch_up": grace + more})
    ),
    st.sampled_from([lambda: Missed.SKIP, lambda: Missed.ONCE, lambda: Missed.all(max=3)]),
    st.integers(0, 200),
    st.integers(0, 1000),
)
rules = st.one_of(
    st.integers(1, 100).map(Every),
    st.integers(1, 100).map(lambda seconds: Every(seconds).anchored(START_MS)),
    st.sampled_from(["* * * * *", "*/10 * * * * *", "7 * * * * *"]).map(Cron),
    st.lists(st.integers(0, 1500)).map(lambda s: At(*(instant(START_MS + n * 1000) for n in s))),
)


@settings(max_examples=cases(300))
@given(rule=rules, policy=policies, lateness=st.integers(0, 1500_000), due=st.integers(0, 60_000))
def test_a_decision_is_what_judging_each_instant_gives(
    rule: Rule, policy: Missed, lateness: int, due: int
) -> None:
    due_ms = START_MS + due  # of the rule or not: a schedule may have been edited
    now_ms = due_ms + lateness
    instants = _due(rule, due_ms, now_ms)
    fires = _model(instants, now_ms, policy)
    next_ms = rule.anchored(due_ms).next_ms(now_ms)
    decision = decide_missed(rule, policy, due_ms=due_ms, now_ms=now_ms)
    assert decision == MissedDecision(tuple(fires), next_ms, len(instants) - len(fires))


class TestPolicies:
    """Hourly, due at 0; now is half past five unless stated."""

    NOW = START_MS + 5 * HOUR + HOUR // 2

    def _decide(self, policy: Missed, now_ms: int = NOW) -> MissedDecision:
        return decide_missed(HOURLY, policy, due_ms=START_MS, now_ms=now_ms)

    def test_nothing_is_decided_before_it_is_due(self) -> None:
        assert self._decide(Missed.ONCE, START_MS - 1) == MissedDecision((), START_MS, 0)

    @pytest.mark.parametrize("policy", [Missed.SKIP, Missed.ONCE, Missed.all()])
    @pytest.mark.parametrize("late_ms", [0, 1, 60_000])
    def test_up_to_the_grace_an_instant_is_on_time(self, policy: Missed, late_ms: int) -> None:
        decision = self._decide(policy, START_MS + late_ms)
        assert decision == MissedDecision(_hours(0), START_MS + HOUR, 0)

    def test_skip_drops_what_is_later_than_that(self) -> None:
        decision = self._decide(Missed.SKIP, START_MS + 60_001)
        assert decision == MissedDecision((), START_MS + HOUR, 1)
        assert self._decide(Missed.SKIP) == MissedDecision((), SIX, 6)

    def test_once_fires_the_latest_for_all(self) -> None:
        assert self._decide(Missed.ONCE) == MissedDecision(_hours(5), SIX, 5)

    def test_once_fires_no_missed_one_beside_one_that_is_on_time(self) -> None:
        decision = self._decide(Missed.ONCE, START_MS + 5 * HOUR + 1000)
        assert decision == MissedDecision(_hours(5), SIX, 5)

    def test_all_fires_each_in_order(self) -> None:
        assert self._decide(Missed.all()) == MissedDecision(_hours(0, 1, 2, 3, 4, 5), SIX, 0)

    def test_of_too_many_the_oldest_are_dropped_and_counted(self) -> None:
        assert self._decide(Missed.all(max=2)) == MissedDecision(_hours(4, 5), SIX, 4)

    def test_what_is_on_time_does_not_count_against_the_most(self) -> None:
        decision = self._decide(Missed.all(max=2), START_MS + 5 * HOUR)
        assert decision == MissedDecision(_hours(3, 4, 5), SIX, 3)

    @pytest.mark.parametrize("policy", [Missed.ONCE, Missed.all()])
    def test_what_is_older_than_the_catch_up_window_never_fires(self, policy: Missed) -> None:
        decision = self._decide(policy.within(catch_up="29m"))
        assert decision == MissedDecision((), SIX, 6)
        decision = self._decide(policy.within(catch_up="30m"))
        assert decision == MissedDecision(_hours(5), SIX, 5)

    def test_a_wider_grace_makes_late_ones_punctual(self) -> None:
        decision = self._decide(Missed.SKIP.within(grace="90m"))
        assert decision == MissedDecision(_hours(4, 5), SIX, 4)

    def test_a_rule_that_has_ended_has_no_next(self) -> None:
        rule = At(instant(START_MS), instant(START_MS + 1))
        decision = decide_missed(rule, Missed.ONCE, due_ms=START_MS, now_ms=START_MS + 10)
        assert decision == MissedDecision((START_MS, START_MS + 1), None, 0)


class TestManyAtOnce:
    def test_more_fires_than_fit_come_in_the_next_decision_and_none_twice(self) -> None:
        rule, now_ms = Every("1s").anchored(START_MS), START_MS + 5000_000
        policy = Missed.all(max=4000)
        due_ms: int | None = START_MS
        fires: list[int] = []
        skipped = 0
        sizes = []
        while due_ms is not None and due_ms <= now_ms:
            decision = decide_missed(rule, policy, due_ms=due_ms, now_ms=now_ms)
            fires += decision.fires
            sizes.append(len(decision.fires))
            skipped, due_ms = skipped + decision.skipped, decision.next_ms
        assert fires == _model(_due(rule, START_MS, now_ms), now_ms, policy)
        assert skipped + len(fires) == 5001
        assert max(sizes) == FIRES_AT_ONCE

    @pytest.mark.parametrize("policy", [Missed.SKIP, Missed.ONCE, Missed.all(max=100)])
    @pytest.mark.parametrize("rule", [Every("1ms"), Cron("* * * * * *", tz="Europe/Berlin")])
    def test_a_year_of_outage_is_decided_in_milliseconds(self, rule: Rule, policy: Missed) -> None:
        policy = policy.within(grace=0)
        now_ms = START_MS + YEAR_MS

        def decision() -> MissedDecision:
            return decide_missed(rule, policy, due_ms=START_MS, now_ms=now_ms)

        made = decision()
        step_ms = 1 if isinstance(rule, Every) else 1000
        assert made.skipped + len(made.fires) == YEAR_MS // step_ms + 1
        assert made.next_ms == now_ms + step_ms
        assert _quickest_s(decision) < 0.010

    @pytest.mark.parametrize("policy", [Missed.SKIP, Missed.ONCE, Missed.all(max=100)])
    def test_so_is_one_that_ends_with_a_minute_of_instants_on_time(self, policy: Missed) -> None:
        now_ms, rule = START_MS + YEAR_MS, Every("1ms")
        first_ms = now_ms - policy.grace_ms - policy.max
        made = decide_missed(rule, policy, due_ms=START_MS, now_ms=now_ms)
        assert made.fires == tuple(range(first_ms, first_ms + FIRES_AT_ONCE))
        assert made.skipped == first_ms - START_MS
        assert made.next_ms == first_ms + FIRES_AT_ONCE
        spent_s = _quickest_s(lambda: decide_missed(rule, policy, due_ms=START_MS, now_ms=now_ms))
        assert spent_s < 0.010


def _quickest_s(call: Callable[[], object]) -> float:
    """The best of several, since the machine may be busy with something else."""
    spent = []
    for _ in range(8):
        begun = time.perf_counter()
        call()
        spent.append(time.perf_counter() - begun)
    return min(spent)


class TestValues:
    def test_policies_that_say_the_same_are_equal(self) -> None:
        assert Missed.all(max=100) == Missed.all()
        assert Missed.SKIP.within(grace="60s") == Missed.SKIP
        assert Missed.ONCE.within(grace=1) != Missed.ONCE
        assert len({Missed.SKIP, Missed.ONCE, Missed.all(), Missed.all(max=5)}) == 4

    def test_the_catch_up_window_is_never_shorter_than_the_grace(self) -> None:
        assert Missed.ONCE.within(grace="2d").catch_up_ms == 2 * 86_400_000

    @pytest.mark.parametrize(
        ("policy", "written"),
        [
            (Missed.SKIP, "Missed.SKIP"),
            (Missed.ONCE.within(grace="5s"), "Missed.ONCE.within(grace='5s')"),
            (
                Missed.all(max=7).within(grace=0, catch_up="1h30m"),
                "Missed.all(max=7).within(grace='0s', catch_up='1h30m')",
            ),
        ],
    )
    def test_a_policy_reads_as_it_is_written(self, policy: Missed, written: str) -> None:
        assert repr(policy) == written

    @pytest.mark.parametrize("most", [0, -1, 1.5, True, None, 2**32])
    def test_a_most_that_is_none_is_refused(self, most: object) -> None:
        with pytest.raises(OptionError, match=r"^Invalid max "):
            Missed.all(max=most)  # type: ignore[arg-type]

    def test_windows_that_cannot_be_are_refused(self) -> None:
        with pytest.raises(OptionError, match=r"^Invalid grace -1"):
            Missed.ONCE.within(grace=-1)
        with pytest.raises(OptionError, match=r"^Invalid catch_up 'often'"):
            Missed.ONCE.within(catch_up="often")
        with pytest.raises(OptionError, match=r"^Invalid catch_up 5 .*at least grace=10s"):
            Missed.ONCE.within(grace=10, catch_up=5)
        with pytest.raises(OptionError, match=r"^Invalid catch_up '1h' .*means nothing"):
            Missed.SKIP.within(catch_up="1h")
