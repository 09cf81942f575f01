"""Sentry: spans of queues, and errors that say which job they happened in.

Needs the package sentry-sdk, which the program sets up with `sentry_sdk.init`. No payload is sent:
errors come without the values of variables, which `init` would add.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

from tampu.errors import MissingExtra
from tampu.job import Job
from tampu.metrics.telemetry import JobRun, RunEnd, Sending
from tampu.outcome import Retry, handler_frames
from tampu.wire.dead import Failure

try:
    import sentry_sdk
    from sentry_sdk.tracing import Span
    from sentry_sdk.utils import event_from_exception
except ModuleNotFoundError as missing:
    raise MissingExtra(extra=None, package="sentry-sdk") from missing

PUBLISH: Final = "queue.publish"
PROCESS: Final = "queue.process"
TASK: Final = "queue.task.tampu"
MESSAGE_ID: Final = "messaging.message.id"
DESTINATION: Final = "messaging.destination.name"
RETRY_COUNT: Final = "messaging.message.retry.count"
LATENCY_MS: Final = "messaging.message.receive.latency"
BODY_BYTES: Final = "messaging.message.body.size"
_ORIGIN: Final = "auto.queue.tampu"
_MECHANISM: Final = {"type": "tampu", "handled": False}
_OK, _ERROR = "ok", "internal_error"


class Sentry:
    """Telemetry for Sentry: `App(telemetry=Sentry())`.

    Each attempt runs in a scope of its own, with the job as tags and context. Every failed attempt
    is an event, except one that ends with `Retry` while there are attempts left.
    """

    def start_send(self, sending: Sending) -> "SentrySend":
        """Start a span `queue.publish`, if a transaction is running."""
        queue = sending.endpoint.queue
        span = sentry_sdk.start_span(op=PUBLISH, name=queue, origin=_ORIGIN)
        span.set_data(DESTINATION, queue)
        span.set_data(BODY_BYTES, sending.body_bytes)
        return SentrySend(span, sending)

    def start_run(self, run: JobRun) -> "SentryRun":
        """Start a transaction for the attempt, and a span `queue.process` inside of it."""
        return SentryRun(run)

    def headers(self) -> dict[str, str]:
        """The current trace, as a schedule keeps it for its jobs."""
        scope = sentry_sdk.get_current_scope()
        return dict(scope.iter_trace_propagation_headers())


class SentrySend:
    """The span of an add."""

    def __init__(self, span: Span, sending: Sending) -> None:
        self._span, self._sending = span, sending

    @property
    def headers(self) -> Mapping[str, str]:
        """The span as the parent of the attempts."""
        scope = sentry_sdk.get_current_scope()
        return dict(scope.iter_trace_propagation_headers(span=self._span))

    def end(self, jobs: Sequence[Job[Any]], error: BaseException | None) -> None:
        """Finish the span; the id of a single job is known now."""
        if error is None and not self._sending.is_batch:
            self._span.set_data(MESSAGE_ID, jobs[0].id)
        self._span.set_status(_OK if error is None else _ERROR)
        self._span.finish()


class SentryRun:
    """The scope, the transaction and the span of an attempt."""

    def __init__(self, run: JobRun) -> None:
        self._run = run
        self._stack = ExitStack()
        with ExitStack() as stack:
            self._scope = stack.enter_context(sentry_sdk.isolation_scope())
            self._set_job()
            # A fired or long delayed job has a trace of its own.
            headers = {} if run.is_apart else run.job.headers
            made = sentry_sdk.continue_trace(headers, TASK, run.job.name, "task", _ORIGIN)
            self._transaction = stack.enter_context(sentry_sdk.start_transaction(made))
            self._span = stack.enter_context(self._start_span())
            self.trace_id: str | None = self._transaction.trace_id
            self._stack = stack.pop_all()

    def end(self, end: RunEnd) -> None:
        """Send the error, if there was one, and leave the scope."""
        with self._stack:
            status = _OK if end.failure is None else _ERROR
            if end.failure is not None and not self._is_asked_for(end.error):
                self._capture(end.failure, end.error)
            self._span.set_status(status)
            self._transaction.set_status(status)

    def _set_job(self) -> None:
        run, job, scope = self._run, self._run.job, self._scope
        tags = {"job.id": job.id, "job.name": job.name, "job.attempt": str(job.attempt)}
        if run.jobs:  # then the id is that of the batch
            tags["job.batch"] = str(len(run.jobs))
        scope.set_tags({**tags, "queue": run.endpoint.queue})
        about = {"id": job.id, "task": job.name, "queue": run.endpoint.queue}
        numbers = {"attempt": job.attempt, "attempts": run.attempts}
        scope.set_context("job", {**about, **numbers, "worker": run.endpoint.client_id})

    def _start_span(self) -> Span:
        run = self._run
        span = sentry_sdk.start_span(op=PROCESS, name=run.endpoint.queue, origin=_ORIGIN)
        span.set_data(MESSAGE_ID, run.job.id)
        span.set_data(DESTINATION, run.endpoint.queue)
        span.set_data(RETRY_COUNT, run.job.attempt - 1)
        span.set_data(LATENCY_MS, run.wait_ms)
        span.set_data(BODY_BYTES, run.body_bytes)
        return span

    def _is_asked_for(self, error: BaseException | None) -> bool:
        """Whether the handler asked for another attempt and gets it: that is no error."""
        return isinstance(error, Retry) and self._run.job.attempt < self._run.attempts

    def _capture(self, failure: Failure, error: BaseException | None) -> None:
        if error is None or error.__traceback__ is None:
            sentry_sdk.capture_event(_event_of_text(failure))
            return
        options = {**sentry_sdk.get_client().options, "include_local_variables": False}
        event, hint = event_from_exception(
            (type(error), error, handler_frames(error)), options, _MECHANISM
        )
        sentry_sdk.capture_event(event, hint=hint)


def _event_of_text(failure: Failure) -> Any:  # noqa: ANN401 - Sentry's type is a large TypedDict
    """The event of an error that was raised in a child process, which sends only text."""
    raised = {"type": failure.error_type, "value": failure.message, "mechanism": _MECHANISM}
    extra = {"traceback": failure.traceback} if failure.traceback else {}
    return {"level": "error", "exception": {"values": [raised]}, "extra": extra}
