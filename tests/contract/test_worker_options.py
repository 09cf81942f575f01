"""Options of workers and handlers: invalid ones are refused before anything happens."""

from typing import Any

import pytest

from tampu.backoff import DEFAULT_BACKOFF, Backoff
from tampu.consumer.handler import Handler
from tampu.consumer.options import WorkerSettings
from tampu.errors import OptionError
from tampu.job import Job
from tampu.worker import Worker


async def handler(job: Job[Any]) -> None:
    """Does nothing."""


POLICY: list[tuple[str, object]] = [
    ("attempts", 0),
    ("attempts", -1),
    ("attempts", 1.5),
    ("attempts", "3"),
    ("attempts", True),
    ("attempts", 2**32),
    ("backoff", 5),
    ("backoff", "fixed"),
    ("timeout", 0),
    ("timeout", -1),
    ("timeout", "soon"),
    ("timeout", float("nan")),
    ("isolation", "thread"),
    ("isolation", True),
]


@pytest.mark.parametrize(
    ("option", "given"),
    [
        *POLICY,
        ("attempts", None),
        ("backoff", None),
        ("concurrency", 0),
        ("concurrency", -1),
        ("concurrency", 1.0),
        ("concurrency", True),
        ("concurrency", None),
        ("store_results", 1),
        ("store_results", None),
        ("result_ttl", 0),
        ("result_ttl", -5),
        ("result_ttl", "never"),
        ("events", "no"),
        ("events_max_len", 0),
        ("dead_max_len", 0),
        ("dead_max_len", "many"),
        ("max_payload", 0),
        ("lease", 0),
        ("lease", 0.4),
        ("lease", "forever"),
        ("grace", -1),
        ("grace", None),
        ("promote", "yes"),
        ("group", ""),
        ("group", "a b"),
        ("group", "{x}"),
        ("group", None),
        ("name", ""),
        ("name", "a b"),
        ("name", 5),
        ("raw", 1),
        ("metrics", print),
        ("concurency", 5),
    ],
)
def test_a_worker_names_an_invalid_option(option: str, given: object) -> None:
    options: Any = {option: given}
    with pytest.raises(OptionError, match=rf"^Invalid {option} "):
        Worker("work", handler, **options)


@pytest.mark.parametrize(("option", "given"), POLICY)
def test_a_handler_names_an_invalid_option(option: str, given: object) -> None:
    options: Any = {option: given}
    with pytest.raises(OptionError, match=rf"^Invalid {option} "):
        Handler(handler, **options)


@pytest.mark.parametrize("given", [None, 5, "handler", {}, {"greet": None}, {"greet": 5}])
def test_something_that_is_not_a_handler_is_refused(given: Any) -> None:  # noqa: ANN401
    with pytest.raises(OptionError, match=r"^Invalid handler "):
        Worker("work", given)


@pytest.mark.parametrize("name", ["x" * 257, 5])
def test_an_invalid_job_name_is_refused(name: Any) -> None:  # noqa: ANN401
    with pytest.raises(OptionError, match=r"^Invalid name "):
        Worker("work", {name: handler})


@pytest.mark.parametrize("name", ["", "a b", "{x}", "x" * 129])
def test_an_invalid_queue_name_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=r"^Invalid queue "):
        Worker(name, handler)


def test_an_unknown_option_is_refused_and_the_known_ones_are_listed() -> None:
    options: Any = {"concurency": 5}
    sentence = r"unknown option .did you mean concurrency.*; Worker accepts concurrency, "
    with pytest.raises(OptionError, match=sentence):
        Worker("work", handler, **options)


def test_every_option_accepts_all_its_types() -> None:
    Worker(
        "work",
        {"greet": handler, "": Handler(handler, attempts=1, timeout="1m30s")},
        concurrency=1,
        attempts=2**32 - 1,
        backoff=Backoff.fixed(0),
        timeout=0.001,
        isolation=None,
        result_ttl="1ms",
        dead_max_len=1,
        lease="500ms",
        grace=0,
        group="audit",
    )


def test_the_defaults_are_those_of_the_documentation() -> None:
    defaults = WorkerSettings()
    assert (defaults.concurrency, defaults.attempts) == (100, 25)
    assert defaults.backoff == DEFAULT_BACKOFF
    assert (defaults.timeout, defaults.isolation, defaults.metrics) == (None, None, None)
    assert (defaults.store_results, defaults.events, defaults.promote) == (False, True, True)
    assert (defaults.lease, defaults.grace, defaults.result_ttl) == (30, 25, "1h")
    assert (defaults.max_payload, defaults.dead_max_len) == (1024 * 1024, None)


def test_a_function_that_a_child_process_could_not_import_is_refused() -> None:
    with pytest.raises(OptionError, match=r"^Invalid handler "):
        Worker("work", lambda job: None, isolation="process")
