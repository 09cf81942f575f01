"""Outcomes of attempts, and errors as text."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tampu.limits import RateLimited
from tampu.outcome import (
    Bury,
    Cancelled,
    Done,
    Failed,
    Outcome,
    Released,
    Retry,
    Snooze,
    Snoozed,
    Throttled,
    Unrecoverable,
    UnrecoverableFailure,
    outcome_after_limit,
    outcome_of_error,
    outcome_of_value,
)
from tampu.wire.dead import MAX_MESSAGE_BYTES, MAX_TRACEBACK_BYTES, BuryReason, Failure


class Refused(Unrecoverable):
    class Inner(Exception):
        pass


class Mute(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


def failure_from(error: BaseException) -> Failure:
    """The failure of an attempt whose handler raises the error."""
    outcome = outcome_of_error(catch(error))
    assert isinstance(outcome, Failed)
    return outcome.failure


def catch(error: BaseException) -> BaseException:
    try:
        handler(error)
    except BaseException as seen:  # noqa: BLE001 - that is what is tested
        return seen
    raise AssertionError


def handler(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("value", [None, 1, {"a": [1]}, ValueError("kept")])
def test_a_handler_that_returns_is_done(value: object) -> None:
    assert outcome_of_value(value) == Done(value)


def test_retry_fails_the_attempt_and_chooses_the_wait() -> None:
    outcome = outcome_of_error(Retry("busy", after="2s"))
    assert outcome == Failed(Failure("tampu.outcome.Retry", "busy"), 2000)
    assert outcome_of_error(Retry()) == Failed(
        Failure("tampu.outcome.Retry", "the handler asked for another attempt"), None
    )


def test_snooze_runs_the_job_later() -> None:
    assert outcome_of_error(Snooze(1.5)) == Snoozed(1500)


@pytest.mark.parametrize(
    "made_of", [outcome_of_error, outcome_of_value], ids=["raised", "returned"]
)
def test_rate_limited_closes_a_limit(made_of: Callable[[Any], Outcome]) -> None:
    assert made_of(RateLimited("2s", limit="stripe")) == Throttled(2000, "stripe")
    assert made_of(RateLimited(0)) == Throttled(1, None)  # now is too soon


@pytest.mark.parametrize("error", [Bury("no"), Unrecoverable("no"), Refused("no")])
def test_unrecoverable_and_its_subclasses_allow_no_further_attempt(error: Unrecoverable) -> None:
    outcome = outcome_of_error(error)
    assert isinstance(outcome, UnrecoverableFailure)
    assert outcome.failure.message == "no"
    assert outcome.reason is BuryReason.UNRECOVERABLE


def test_bury_can_show_the_error_that_was_raised() -> None:
    outcome = outcome_of_error(Bury(error=LookupError("lost")))
    assert isinstance(outcome, UnrecoverableFailure)
    assert (outcome.failure.error_type, outcome.failure.message) == ("LookupError", "lost")
    assert str(Bury(error=LookupError("lost"))) == "lost"


@pytest.mark.parametrize("value", [Retry("x", after=1), Snooze(1), Bury("x"), Refused("x")])
def test_these_can_be_returned_as_well_as_raised(value: Exception) -> None:
    assert outcome_of_value(value) == outcome_of_error(value)
    assert not isinstance(outcome_of_value(value), Done)


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), SystemExit("x"), KeyboardInterrupt("x"), asyncio.CancelledError("x")],
)
def test_everything_else_is_a_failed_attempt(error: BaseException) -> None:
    failure = failure_from(error)
    assert failure.error_type.rpartition(".")[2] == type(error).__name__
    assert failure.message == "x"


def test_an_error_is_named_by_module_and_class_and_a_builtin_by_its_class_alone() -> None:
    assert failure_from(ValueError()).error_type == "ValueError"
    assert failure_from(Refused.Inner()).error_type == f"{__name__}.Refused.Inner"


def test_an_error_of_a_script_has_the_same_name_in_a_child_process() -> None:
    kind: Any = type("Odd", (Exception,), {"__module__": "__mp_main__"})
    assert failure_from(kind()).error_type == "__main__.Odd"


def test_an_error_whose_text_cannot_be_made_still_fails_the_attempt() -> None:
    failure = failure_from(Mute())
    assert failure.message == "(no text: __str__ raised an error)"
    assert "Mute" in failure.traceback


def test_text_that_is_not_utf8_is_replaced() -> None:
    failure = failure_from(ValueError("a\ud800b"))
    assert failure.message == "a?b"
    failure.traceback.encode()


def test_long_texts_are_cut_and_tracebacks_keep_their_end() -> None:
    failure = failure_from(ValueError("é" * 100_000 + "end"))
    assert len(failure.message.encode()) <= MAX_MESSAGE_BYTES
    assert failure.message.startswith("é")
    assert len(failure.traceback.encode()) <= MAX_TRACEBACK_BYTES
    assert failure.traceback.endswith("éend\n")


def test_the_traceback_begins_with_the_handler() -> None:
    async def through_asyncio() -> None:
        handler(KeyError("k"))

    # Called from a module whose name is one between a worker and a handler.
    between = "def call(f): f()"
    ours: dict[str, Any] = {"__name__": "tampu.consumer.runners.local"}
    exec(between, ours)  # noqa: S102
    with pytest.raises(KeyError) as seen:
        ours["call"](lambda: asyncio.run(through_asyncio()))
    tb = seen.value.__traceback__
    assert tb is not None
    error = seen.value.with_traceback(tb.tb_next)  # the frame of this test
    outcome = outcome_of_error(error)
    assert isinstance(outcome, Failed)
    first = outcome.failure.traceback.splitlines()[1]
    assert "<lambda>" in first
    assert outcome.failure.traceback.splitlines()[-1] == "KeyError: 'k'"


def test_frames_of_asyncio_above_the_handler_are_dropped_too() -> None:
    async def main() -> None:
        handler(KeyError("k"))

    try:
        asyncio.run(main())
    except KeyError as error:
        assert error.__traceback__ is not None
        outcome = outcome_of_error(error.with_traceback(error.__traceback__.tb_next))
    assert isinstance(outcome, Failed)
    assert "asyncio" not in outcome.failure.traceback
    assert "in main" in outcome.failure.traceback.splitlines()[1]


def test_causes_are_part_of_the_traceback() -> None:
    def chained() -> None:
        try:
            handler(KeyError("first"))
        except KeyError as error:
            raise ValueError("second") from error

    try:
        chained()
    except ValueError as error:
        outcome = outcome_of_error(error)
    assert isinstance(outcome, Failed)
    assert "KeyError: 'first'" in outcome.failure.traceback
    assert outcome.failure.traceback.endswith("ValueError: second\n")


def test_an_error_that_was_never_raised_has_no_traceback() -> None:
    outcome = outcome_of_value(Bury("x"))
    assert isinstance(outcome, UnrecoverableFailure)
    assert outcome.failure.traceback == ""


class TestAfterTheLimit:
    @pytest.mark.parametrize("outcome", [Done(1), Snoozed(5)])
    def test_an_attempt_that_returned_has_failed(self, outcome: Outcome) -> None:
        after = outcome_after_limit(outcome, 1.5)
        text = "it ran longer than its time limit of 1.5 s"
        assert after == Failed(Failure("JobTimeout", text))

    def test_an_attempt_that_raised_keeps_its_traceback_and_the_wait_it_asked_for(self) -> None:
        after = outcome_after_limit(Failed(Failure("OSError", "x", "Traceback"), 70), 1.5)
        assert isinstance(after, Failed)
        assert (after.failure.error_type, after.failure.traceback) == ("JobTimeout", "Traceback")
        assert after.after_ms == 70

    @pytest.mark.parametrize(
        "outcome", [UnrecoverableFailure(Failure("X", "y")), Released(), Cancelled()]
    )
    def test_other_outcomes_stay(self, outcome: Outcome) -> None:
        assert outcome_after_limit(outcome, 1.5) is outcome
