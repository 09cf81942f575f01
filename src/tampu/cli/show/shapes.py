"""What `--json` prints, as plain dictionaries. These shapes are stable: programs read them."""

from collections.abc import Sequence
from typing import TypeAlias

from tampu.admin.dead import DeadLetter
from tampu.admin.health import Finding, Grade
from tampu.admin.jobs import JobInfo
from tampu.admin.queues import Counts, Overview
from tampu.admin.rates import QueueRates
from tampu.admin.workers import WorkerInfo, alive
from tampu.errors import JobFailed
from tampu.events import JobEvent
from tampu.schedules.model import Schedule
from tampu.timing import Cron, Every, Missed, TimeWindow
from tampu.timing.policies import MissedKind
from tampu.util.clock import Duration, to_s

Shape: TypeAlias = dict[str, object]


def counts_shape(counts: Counts) -> Shape:
    """How many jobs, by state."""
    return {field: getattr(counts, field) for field in counts.__struct_fields__}


def worker_shape(worker: WorkerInfo) -> Shape:
    """One worker."""
    return {field: getattr(worker, field) for field in worker.__struct_fields__}


def overview_shape(overview: Overview) -> Shape:
    """One queue of `inspect`."""
    return {
        "queue": overview.queue,
        "group": overview.group,
        "at": overview.at,
        **counts_shape(overview.counts),
        "oldest_waiting_at": overview.oldest_waiting_at,
        "next_due_at": overview.next_due_at,
        "workers": [worker_shape(worker) for worker in overview.workers],
    }


def flow_shape(flow: QueueRates) -> Shape:
    """One line of `watch`."""
    return {
        "at": flow.at,
        "queue": flow.queue,
        **counts_shape(flow.counts),
        "workers": alive(flow.workers),
        "added_per_s": _rounded(flow.rates.added),
        "done_per_s": _rounded(flow.rates.done),
        "failed_per_s": _rounded(flow.rates.failed),
    }


def event_shape(event: JobEvent) -> Shape:
    """One event."""
    return {
        "id": event.id,
        "at": event.at,
        "kind": event.kind,
        "job_id": event.job_id or None,
        "name": event.name,
        "fields": event.fields,
    }


def letter_shape(letter: DeadLetter) -> Shape:
    """One dead letter; its bytes are there only if they could not be read."""
    failure = letter.failure
    return {
        "dead_id": letter.dead_id,
        "buried_at": letter.buried_at,
        "job_id": letter.job_id,
        "name": letter.name,
        "reason": letter.reason,
        "detail": letter.detail,
        "attempt": letter.attempt,
        "worker": letter.worker,
        "error": None
        if failure is None
        else {
            "type": failure.error_type,
            "message": failure.message,
            "traceback": failure.traceback,
        },
        "data": letter.data,
        "raw": letter.raw if letter.job_id is None else None,
    }


def schedule_shape(schedule: Schedule) -> Shape:
    """One schedule."""
    settings, counts = schedule.settings, schedule.counts
    return {
        "key": schedule.key,
        "name": schedule.name,
        **rule_shape(schedule),
        "next_at": schedule.next_at,
        "paused": schedule.paused,
        "problem": schedule.problem,
        "counts": {field: getattr(counts, field) for field in counts.__struct_fields__},
        **_missed_shape(settings.missed),
        "overlap": settings.overlap.name.lower(),
        "window": _window_shape(settings.window),
        "limit": settings.limit,
        "start": settings.start,
        "end": settings.end,
        "jitter_s": _seconds(settings.jitter),
        "attempts": settings.attempts,
        "timeout_s": _seconds(settings.timeout),
        "data": schedule.data,
    }


def rule_shape(schedule: Schedule) -> Shape:
    """A schedule's rule: one of `cron` and `every_s`, and both in words."""
    rule = schedule.rule
    return {
        "cron": rule.text if isinstance(rule, Cron) else None,
        "tz": rule.tz if isinstance(rule, Cron) else None,
        "every_s": rule.interval_ms / 1000 if isinstance(rule, Every) else None,
        "explained": None if rule is None else rule.explain(),
    }


def _window_shape(window: TimeWindow | None) -> Shape | None:
    if window is None:
        return None
    return {"tz": window.tz, "days": window.days, "segments": window.segments}


def job_shape(job: JobInfo) -> Shape:
    """A job, wherever it is."""
    return {
        "id": job.id,
        "state": job.state,
        "searched_all": job.searched_all,
        "name": job.name,
        "data": job.data,
        "attempt": job.attempt,
        "created_at": job.created_at,
        "due_at": job.due_at,
        "worker": job.worker,
        "entry_id": job.entry_id,
        "result": job.result,
        "dead": None if job.dead is None else letter_shape(job.dead),
    }


def failed_shape(failed: JobFailed) -> Shape:
    """Why there is no result."""
    return {
        "reason": failed.reason,
        "type": failed.error_type,
        "message": failed.message,
        "traceback": failed.traceback,
    }


def findings_shape(server: str, findings: Sequence[Finding]) -> Shape:
    """What `doctor` found."""
    return {
        "server": server,
        "ok": all(each.grade is not Grade.FAIL for each in findings),
        "findings": [
            {"check": each.check, "grade": each.grade, "sentence": each.sentence}
            for each in findings
        ],
    }


def _missed_shape(missed: Missed) -> Shape:
    return {
        "missed": missed.kind.name.lower(),
        "missed_max": missed.max if missed.kind is MissedKind.ALL else None,
        "missed_grace_s": missed.grace_ms / 1000,
        "missed_catch_up_s": missed.catch_up_ms / 1000,
    }


def _rounded(per_s: float | None) -> float | None:
    return None if per_s is None else round(per_s, 2)


def _seconds(given: Duration | None) -> float | None:
    return None if given is None else to_s("duration", given)
