"""Telemetry: what is accepted, and how several share the headers of a job."""

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from tampu import OptionError, Queue, Worker
from tampu.job import Job
from tampu.metrics import Endpoint, JobRun, OutcomeKind, RunEnd, RunSpan, Sending, SendSpan
from tampu.metrics.telemetry import SafeTelemetry, check_telemetry, current_trace_id
from tampu.testing import make_job
from tampu.wire.extras import Extras


class Note:
    """One add or run, whose end is noted."""

    def __init__(self, name: str, ended: list[str], headers: Mapping[str, str]) -> None:
        self._name, self._ended = name, ended
        self.headers = headers
        self.trace_id = name if name != "silent" else None

    def end(self, *facts: object) -> None:
        self._ended.append(self._name)


class Noting:
    """Telemetry with fixed headers."""

    def __init__(self, name: str, ended: list[str], **headers: str) -> None:
        self._note = Note(name, ended, headers)

    def start_send(self, sending: Sending) -> SendSpan:
        return self._note

    def start_run(self, run: JobRun) -> RunSpan:
        return self._note

    def headers(self) -> Mapping[str, str]:
        return self._note.headers


HERE = Endpoint("work", "c1", "127.0.0.1", 6379)
ONE = Sending(endpoint=HERE, count=1, name="greet", body_bytes=1, is_batch=False)


def run_of(job: Job[Any], *, delay_ms: int = 0) -> JobRun:
    return JobRun(endpoint=HERE, job=job, attempts=3, wait_ms=0, delay_ms=delay_ms, body_bytes=1)


@pytest.mark.parametrize("given", [Noting, 5, "otel", [None], object()])
@pytest.mark.parametrize("owner", [Queue, lambda *_, **options: Worker("work", print, **options)])
def test_what_is_not_telemetry_is_refused(owner: Any, given: object) -> None:  # noqa: ANN401
    with pytest.raises(OptionError, match="telemetry"):
        owner("work", telemetry=given)


def test_none_one_and_many_are_accepted() -> None:
    for given in (None, Noting("a", []), [Noting("a", []), Noting("b", [])], ()):
        check_telemetry(given)


def test_headers_are_merged_and_what_began_last_ends_first() -> None:
    ended: list[str] = []
    first = Noting("first", ended, trace="1", baggage="a=1", own="x")
    second = Noting("second", ended, trace="2", baggage="b=2", other="y")
    safe = SafeTelemetry([first, second])
    span = safe.start_send(ONE)
    expected = {"trace": "1", "baggage": "a=1,b=2", "own": "x", "other": "y"}
    assert span.headers == safe.headers() == expected
    span.end([])
    assert ended == ["second", "first"]


def test_the_trace_of_a_run_is_that_of_the_first_that_has_one() -> None:
    ended: list[str] = []
    silent, loud = Noting("silent", ended), Noting("loud", ended)
    span = SafeTelemetry([silent, loud]).start_run(run_of(make_job()))
    assert current_trace_id() == "loud"
    span.end(RunEnd(OutcomeKind.DONE, 0.1))
    assert current_trace_id() is None


def test_headers_that_are_no_texts_are_left_out() -> None:
    wrong: Any = Noting("wrong", [])
    wrong._note.headers = {"count": 1}
    assert SafeTelemetry([wrong, Noting("b", [], own="x")]).headers() == {"own": "x"}


@pytest.mark.parametrize(
    ("extras", "delay_ms", "is_apart"),
    [
        (Extras(), 0, False),
        (Extras(), 3_600_000, False),
        (Extras(), 3_600_001, True),
        (Extras(schedule_key="daily"), 0, True),
    ],
)
def test_fired_jobs_and_long_delayed_ones_have_a_trace_of_their_own(
    extras: Extras, delay_ms: int, *, is_apart: bool
) -> None:
    made = make_job()
    job = Job[Any]("j", "greet", None, 1, 0, made.host, extras)
    assert run_of(job, delay_ms=delay_ms).is_apart is is_apart


@pytest.mark.parametrize(
    ("module", "package", "advice"),
    [
        ("otel", "opentelemetry", "pip install 'tampu[otel]'"),
        ("sentry", "sentry_sdk", "pip install sentry-sdk"),
    ],
)
def test_a_missing_package_is_an_error_that_says_what_to_install(
    module: str, package: str, advice: str
) -> None:
    program = f"""
import sys
sys.modules[{package!r}] = None
import tampu, tampu.app, tampu.app_worker
try:
    import tampu.metrics.{module}
except tampu.MissingExtra as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert advice in done.stdout


def test_no_adapter_is_imported_unless_it_is_asked_for() -> None:
    program = (
        "import sys, tampu.app_worker, tampu.sync, tampu.metrics, tampu.cli.worker.log; "
        "vendors = {'tampu.metrics.otel', 'tampu.metrics.sentry', 'sentry_sdk'}; "
        "print(sorted(vendors & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
