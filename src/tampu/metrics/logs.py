"""Log records that say which job they belong to."""

import logging
from typing import Final

from tampu.job import current_queue, current_run
from tampu.metrics.telemetry import current_trace_id

JOB_FIELDS: Final = ("job_id", "job_name", "queue", "attempt", "trace_id")
"""The names of what `job_fields` gives, and of what `JobLogFilter` adds."""
_OWN: Final = "tampu."


class JobLogFilter(logging.Filter):
    """Adds the running job to each record: `job_id`, `job_name`, `queue`, `attempt`, `trace_id`.

    Add it to a handler of the logging module, so that it sees the records of all loggers. Records
    that are logged outside of a job stay as they are. `trace_id` needs telemetry. What a record has
    already is kept: tampu's own records say themselves which job they are about.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields; every record passes."""
        # Our own code also logs between two jobs, where the last one still counts as current.
        if not record.name.startswith(_OWN):
            for name, value in job_fields().items():
                vars(record).setdefault(name, value)
        return True


def job_fields() -> dict[str, str | int]:
    """What a log says about the job that runs here: `JOB_FIELDS`; empty if none does.

    For loggers that are not of the logging module. A batch of jobs has its name, not an id. A job
    keeps its fields in threads that inherit its context.
    """
    job = current_run()
    if job is None:
        return {}
    fields: dict[str, str | int] = {"job_name": job.name}
    if not job.is_batch:
        fields |= {"job_id": job.id, "attempt": job.attempt}
    queue, trace_id = current_queue(), current_trace_id()
    if queue is not None:
        fields["queue"] = queue
    if trace_id is not None:
        fields["trace_id"] = trace_id
    return fields
