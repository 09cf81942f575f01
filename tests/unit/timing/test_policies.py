"""Missed policies, against a model that judges each instant alone."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tampu.errors import OptionError
from tampu.timing import At, Cron, Every, Missed, MissedDecision, MissedKind, Rule, decide_missed
from tampu.timing.policies import FIRES_AT_ONCE
from tampu.util.clock import instant
from tests.effort import cases
from tests.unit.timing.daemon import CountingRule

YEAR_MS = 365 * 86_400_000
START_MS = int(datetime(2026, 10, 24, tzinfo=UTC).timestamp() * 1000)

HOURLY = Every("1h").with_anchor(START_MS)
HOUR = 3_600_000
SIX = START_MS + 6 * HOUR


def _hours(*numbers: int) -> tuple[int, ...]:
    return tuple(START_MS + n * HOUR for n in numbers)


def _model(due: list[int], now_ms: int, policy: Missed) -> list[int]:
    """The fires, if each instant is judged alone."""
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
    found, at_ms = [], rule.with_anchor(due_ms).next_ms(due_ms)
    while at_ms is not None and at_ms <= now_ms:
        found.append(at_ms)
        at_ms = rule.with_anchor(due_ms).next_ms(at_ms)
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
    st.integers(1, 100).map(lambda seconds: Every(seconds).with_anchor(START_MS)),
    st.sampled_from(["* * * * *", "*/10 * * * * *", "7 * * * * *"]).map(Cron),
    st.lists(st.integers(0, 1500)).map(lambda s: At(*(instant(START_MS + n * 1000) for n in s))),
)


@settings(max_examples=cases(300))
@given(rule=rules, policy=policies, lateness=st.integers(0, 1500_000), due=st.integers(0, 60_000))
def test_a_decision_agrees_with_judging_each_instant_alone(
    rule: Rule, policy: Missed, lateness: int, due: int
) -> None:
    due_ms = START_MS + due  # maybe not an instant of the rule, which may have been edited
    now_ms = due_ms + lateness
    instants = _due(rule, due_ms, now_ms)
    fires = _model(instants, now_ms, policy)
    next_ms = rule.with_anchor(due_ms).next_ms(now_ms)
    decision = decide_missed(rule, policy, due_ms=due_ms, now_ms=now_ms)
    assert decision == MissedDecision(tuple(fires), next_ms, len(instants) - len(fires))


class TestPolicies:
    """Hourly, due at 0. Now is half past five unless a test says otherwise."""

    NOW = START_MS + 5 * HOUR + HOUR // 2

    def _decide(self, policy: Missed, now_ms: int = NOW) -> MissedDecision:
        return decide_missed(HOURLY, policy, due_ms=START_MS, now_ms=now_ms)

    def test_nothing_fires_before_it_is_due(self) -> None:
        assert self._decide(Missed.ONCE, START_MS - 1) == MissedDecision((), START_MS, 0)

    @pytest.mark.parametrize("policy", [Missed.SKIP, Missed.ONCE, Missed.all()])
    @pytest.mark.parametrize("late_ms", [0, 1, 60_000])
    def test_up_to_the_grace_an_instant_is_on_time(self, policy: Missed, late_ms: int) -> None:
        decision = self._decide(policy, START_MS + late_ms)
        assert decision == MissedDecision(_hours(0), START_MS + HOUR, 0)

    def test_skip_drops_instants_that_are_later_than_the_grace(self) -> None:
        decision = self._decide(Missed.SKIP, START_MS + 60_001)
        assert decision == MissedDecision((), START_MS + HOUR, 1)
        assert self._decide(Missed.SKIP) == MissedDecision((), SIX, 6)

    def test_once_fires_only_the_latest(self) -> None:
        assert self._decide(Missed.ONCE) == MissedDecision(_hours(5), SIX, 5)

    def test_once_fires_no_missed_instant_if_another_is_on_time(self) -> None:
        decision = self._decide(Missed.ONCE, START_MS + 5 * HOUR + 1000)
        assert decision == MissedDecision(_hours(5), SIX, 5)

    def test_all_fires_every_instant_in_order(self) -> None:
        assert self._decide(Missed.all()) == MissedDecision(_hours(0, 1, 2, 3, 4, 5), SIX, 0)

    def test_all_drops_and_counts_the_oldest_above_the_maximum(self) -> None:
        assert self._decide(Missed.all(max=2)) == MissedDecision(_hours(4, 5), SIX, 4)

    def test_instants_on_time_do_not_count_towards_the_maximum(self) -> None:
        decision = self._decide(Missed.all(max=2), START_MS + 5 * HOUR)
        assert decision == MissedDecision(_hours(3, 4, 5), SIX, 3)

    @pytest.mark.parametrize("policy", [Missed.ONCE, Missed.all()])
    def test_an_instant_older_than_the_catch_up_window_never_fires(self, policy: Missed) -> None:
        decision = self._decide(policy.within(catch_up="29m"))
        assert decision == MissedDecision((), SIX, 6)
        decision = self._decide(policy.within(catch_up="30m"))
        assert decision == MissedDecision(_hours(5), SIX, 5)

    def test_a_longer_grace_makes_late_instants_on_time(self) -> None:
        decision = self._decide(Missed.SKIP.within(grace="90m"))
        assert decision == MissedDecision(_hours(4, 5), SIX, 4)

    def test_a_rule_that_has_ended_has_no_next_instant(self) -> None:
        rule = At(instant(START_MS), instant(START_MS + 1))
        decision = decide_missed(rule, Missed.ONCE, due_ms=START_MS, now_ms=START_MS + 10)
        assert decision == MissedDecision((START_MS, START_MS + 1), None, 0)


class TestManyAtOnce:
    def test_fires_above_the_limit_come_in_the_next_decision_and_none_twice(self) -> None:
        rule, now_ms = Every("1s").with_anchor(START_MS), START_MS + 5000_000
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
    def test_a_year_of_missed_instants_takes_few_calls_of_the_rule(
        self, rule: Rule, policy: Missed
    ) -> None:
        policy, counting = policy.within(grace=0), CountingRule(rule)
        now_ms = START_MS + YEAR_MS
        made = decide_missed(counting, policy, due_ms=START_MS, now_ms=now_ms)
        step_ms = 1 if isinstance(rule, Every) else 1000
        assert made.skipped + len(made.fires) == YEAR_MS // step_ms + 1
        assert made.next_ms == now_ms + step_ms
        assert len(counting.calls) < 200

    @pytest.mark.parametrize("policy", [Missed.SKIP, Missed.ONCE, Missed.all(max=100)])
    def test_a_minute_of_instants_on_time_after_a_year_takes_few_calls_of_the_rule(
        self, policy: Missed
    ) -> None:
        now_ms, counting = START_MS + YEAR_MS, CountingRule(Every("1ms"))
        first_ms = now_ms - policy.grace_ms - policy.max
        made = decide_missed(counting, policy, due_ms=START_MS, now_ms=now_ms)
        assert made.fires == tuple(range(first_ms, first_ms + FIRES_AT_ONCE))
        assert made.skipped == first_ms - START_MS
        assert made.next_ms == first_ms + FIRES_AT_ONCE
        assert len(counting.calls) < FIRES_AT_ONCE + 200


class TestValues:
    def test_equal_policies_compare_equal(self) -> None:
        assert Missed.all(max=100) == Missed.all()
        assert Missed.SKIP.within(grace="60s") == Missed.SKIP
        assert Missed.ONCE.within(grace=1) != Missed.ONCE
        assert len({Missed.SKIP, Missed.ONCE, Missed.all(), Missed.all(max=5)}) == 4

    def test_the_catch_up_window_is_never_shorter_than_the_grace(self) -> None:
        assert Missed.ONCE.within(grace="2d").catch_up_ms == 2 * 86_400_000

    @pytest.mark.parametrize(
        ("policy", "text"),
        [
            (Missed.SKIP, "Missed.SKIP"),
            (Missed.ONCE.within(grace="5s"), "Missed.ONCE.within(grace='5s')"),
            (
                Missed.all(max=7).within(grace=0, catch_up="1h30m"),
                "Missed.all(max=7).within(grace='0s', catch_up='1h30m')",
            ),
        ],
    )
    def test_repr(self, policy: Missed, text: str) -> None:
        assert repr(policy) == text

    @pytest.mark.parametrize("most", [0, -1, 1.5, True, None, 2**32])
    def test_an_invalid_maximum_is_refused_by_name(self, most: object) -> None:
        with pytest.raises(OptionError, match=r"^Invalid max "):
            Missed.all(max=most)  # type: ignore[arg-type]

    def test_an_invalid_grace_or_catch_up_window_is_refused_by_name(self) -> None:
        with pytest.raises(OptionError, match=r"^Invalid grace -1"):
            Missed.ONCE.within(grace=-1)
        with pytest.raises(OptionError, match=r"^Invalid catch_up 'often'"):
            Missed.ONCE.within(catch_up="often")
        with pytest.raises(OptionError, match=r"^Invalid catch_up 5: .*grace, which is 10s\.$"):
            Missed.ONCE.within(grace=10, catch_up=5)
        with pytest.raises(
            OptionError, match=r"^Invalid catch_up '1h': cannot be combined with Missed\.SKIP\.$"
        ):
            Missed.SKIP.within(catch_up="1h")
