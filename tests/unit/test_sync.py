"""`SyncQueue` has every method of `Queue`, with the same parameters."""

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest

from tampu.admin.dead import DeadLetters
from tampu.admin.flows import Flows
from tampu.admin.limits import Limits
from tampu.flows.batch import FlowBatch, SyncFlowBatch
from tampu.flows.run import CompletedJobs, FlowRun, SyncCompletedJobs, SyncFlowRun
from tampu.job import Job
from tampu.producer.sync_job import SyncJob
from tampu.queue import Queue
from tampu.schedules.admin import Schedules
from tampu.sync import SyncDeadLetters, SyncFlows, SyncLimits, SyncQueue, SyncSchedules

PAIRS: list[tuple[type, type]] = [
    (Queue, SyncQueue),
    (DeadLetters, SyncDeadLetters),
    (Schedules, SyncSchedules),
    (Limits, SyncLimits),
    (Flows, SyncFlows),
    (Job, SyncJob),
    (FlowRun, SyncFlowRun),
    (CompletedJobs, SyncCompletedJobs),
    (FlowBatch, SyncFlowBatch),
]
TYPES = {
    "tampu.producer.sync_job.SyncJob": "tampu.job.Job",
    "tampu.sync.SyncJobListing": "tampu.admin.listing.JobListing",
    "abc.Iterator": "abc.AsyncIterator",
    "tampu.flows.run.Sync": "tampu.flows.run.",
    "abc.Generator": "abc.AsyncGenerator",
}
# Called by jobs, not by users; and what a producer's job does not have.
HOST_METHODS = {
    *("actions", "wait_for_result", "report_progress", "charge"),
    *("read_results", "open_output"),
}
HANDLER_ONLY = {
    *("attempt", "cancelled", "created_at_ms", "extras", "headers", "host", "progress"),
    *("charge", "is_batch", "key", "priority", "schedule_key", "scheduled_at", "tenant"),
}
NOT_FOR_USERS: dict[type, set[str]] = {
    Queue: HOST_METHODS,
    Schedules: {"store"},
    Limits: {"declare"},
    Flows: {
        *("dead_letters", "follow_map", "grow", "letter_places", "map_result", "prepare_gate"),
        *("resume", "retry", "start"),
    },
    Job: HANDLER_ONLY,
    FlowRun: {"follow"},
    FlowBatch: {"collect"},
}


def public_names(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def methods_of(kind: type) -> dict[str, Callable[..., Any]]:
    return {
        name: getattr(kind, name)
        for name in [*sorted(public_names(kind)), "__init__"]
        if inspect.isfunction(getattr(kind, name))
    }


METHODS = [
    pytest.param(methods_of(asynchronous)[name], method, id=f"{asynchronous.__name__}.{name}")
    for asynchronous, blocking in PAIRS
    for name, method in methods_of(blocking).items()
    if name in methods_of(asynchronous) and (name != "__init__" or blocking is SyncQueue)
]


@pytest.mark.parametrize(("asynchronous", "blocking"), PAIRS)
def test_no_method_is_missing(asynchronous: type, blocking: type) -> None:
    missing = public_names(asynchronous) - public_names(blocking)
    assert missing == NOT_FOR_USERS.get(asynchronous, set())


@pytest.mark.parametrize(("asynchronous", "blocking"), PAIRS)
def test_no_method_is_its_own(asynchronous: type, blocking: type) -> None:
    assert public_names(blocking) <= public_names(asynchronous)


@pytest.mark.parametrize(("asynchronous", "blocking"), METHODS)
def test_parameters_and_types_are_the_same(
    asynchronous: Callable[..., Any], blocking: Callable[..., Any]
) -> None:
    if hasattr(blocking, "__wrapped__"):
        assert blocking.__wrapped__ is asynchronous, "it calls another method"
        return  # made from the asynchronous one, with its signature
    expected, found = inspect.signature(asynchronous), inspect.signature(blocking)
    assert found.parameters == expected.parameters
    types, blocking_types = get_type_hints(asynchronous), get_type_hints(blocking)
    result, blocking_result = types.pop("return"), blocking_types.pop("return")
    assert blocking_types == types
    told = str(blocking_result)
    for name, asynchronous_name in TYPES.items():
        told = told.replace(name, asynchronous_name)
    assert told == str(result)


def test_methods_keep_their_names_and_documentation() -> None:
    for name, method in methods_of(SyncQueue).items():
        if name != "__init__":
            assert method.__name__ == name
            assert method.__doc__


def test_no_method_is_a_coroutine() -> None:
    for _, blocking in PAIRS:
        for method in methods_of(blocking).values():
            assert not inspect.iscoroutinefunction(method)


def test_what_a_queue_has_its_synchronous_form_has_too() -> None:
    queue, sync = Queue("q", "redis://192.0.2.1"), SyncQueue("q", "redis://192.0.2.1")
    parts = {name for name in vars(queue) if not name.startswith("_")}
    assert parts == {name for name in vars(sync) if not name.startswith("_")}
    sync.close()
