"""Handlers that log, and that child processes can import."""

import logging
import os
import threading
from typing import Any, Never

from tampu.job import Job
from tests.unit.consumer.runners import child_handlers

AnyJob = Job[Any]
_log = logging.getLogger("shop.pictures")


class Unspeakable:
    def __str__(self) -> str:
        raise LookupError("no words")

    def __reduce__(self) -> Never:
        raise TypeError("not picklable")


def facts(job: AnyJob) -> int:
    _log.warning("%d of %s", 3, "cat.png", extra={"shop": "acme", "odd": {1}, "n": 2**70})
    return os.getpid()


def error(job: AnyJob) -> None:
    try:
        _fall_short()
    except ValueError:
        _log.exception("shrinking failed", stack_info=True)


def _fall_short() -> Never:
    raise ValueError("too small")


def levels(job: AnyJob) -> None:
    for level in (logging.DEBUG, logging.INFO, logging.WARNING):
        _log.log(level, "shop %d", level)
        logging.getLogger("other").log(level, "other %d", level)


def wrong(job: AnyJob) -> None:
    _log.warning("%d", "not a number")
    _log.warning("%s", Unspeakable())
    _log.warning("odd", extra={"odd": Unspeakable()})
    _log.warning("lone \ud800")
    _log.warning("x" * 1_000_000)


def in_a_fork(job: AnyJob) -> None:
    if os.fork() == 0:
        _log.warning("from a fork")
        os._exit(0)
    os.wait()


def many(job: AnyJob) -> None:
    for number in range(job.data):
        _log.warning("%d", number)


def and_exits(job: AnyJob) -> None:
    _log.warning("last words")
    os._exit(3)


def and_sleeps(job: AnyJob) -> None:
    _log.warning("last words")
    child_handlers.sleeps(job)


def later(job: AnyJob) -> None:
    threading.Timer(0.05, _log.warning, ["later"]).start()
