"""Log records of child processes are handled by the loggers of their parent."""

import asyncio
import importlib
import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tampu.outcome import Done, Failed
from tests.unit.consumer.runners import child_loggers as handlers
from tests.unit.consumer.runners.child_runs import Make, pid_in, pid_of, run
from tests.waiting import wait_until

SOON = 60.0
SETS_UP_ITS_LOG = """
import logging
logging.basicConfig(level="DEBUG", force=True, format="by a handler of the root: %(message)s")
own = logging.getLogger("own")
own.propagate = False
own.addHandler(logging.StreamHandler())
own.warning("imported")
def handler(job):
    own.warning("ran")
    logging.info("too low")
"""


@pytest.fixture
def shop() -> Iterator[logging.Logger]:
    logger = logging.getLogger("shop")
    yield logger
    logger.setLevel(logging.NOTSET)
    logger.filters.clear()


async def test_a_record_arrives_with_all_its_facts(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    pid = await pid_of(make(handlers.facts))
    (record,) = caplog.records
    assert (record.name, record.levelname, record.getMessage()) == (
        "shop.pictures",
        "WARNING",
        "3 of cat.png",
    )
    assert (record.process, record.funcName, record.module) == (pid, "facts", "child_loggers")
    extra = {name: vars(record)[name] for name in ("shop", "odd", "n")}
    assert extra == {"shop": "acme", "odd": "{1}", "n": str(2**70)}
    assert record.created > 0


async def test_a_traceback_arrives_as_text(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    await run(make(handlers.error))
    (record,) = caplog.records
    assert record.exc_info is None
    assert "ValueError: too small" in logging.Formatter().format(record)
    assert "_fall_short" in str(record.exc_text)
    assert "child_loggers.py" in str(record.stack_info)


async def test_a_child_has_the_levels_of_its_parent(
    make: Make, caplog: pytest.LogCaptureFixture, shop: logging.Logger
) -> None:
    shop.setLevel(logging.INFO)
    await run(make(handlers.levels))
    assert sorted(caplog.messages) == ["other 30", "shop 20", "shop 30"]


async def test_a_level_that_the_parent_raises_later_counts(
    make: Make, caplog: pytest.LogCaptureFixture, shop: logging.Logger
) -> None:
    children = make(handlers.levels)
    await run(children)
    shop.setLevel(logging.ERROR)
    await run(children)
    assert sorted(caplog.messages) == ["other 30", "other 30", "shop 30"]


async def test_a_record_that_cannot_be_described_does_not_fail_the_job(
    make: Make, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    assert isinstance(await run(make(handlers.wrong)), Done)
    assert caplog.messages == ["lone ?", "x" * 64 * 1024]
    assert capfd.readouterr().err.count("--- Logging error ---") == 3


async def test_a_filter_of_the_parent_that_raises_does_not_fail_the_job(
    make: Make, shop: logging.Logger, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(record: logging.LogRecord) -> bool:
        raise LookupError("a filter must not do that")

    logging.getLogger("shop.pictures").addFilter(refuse)
    try:
        assert isinstance(await run(make(handlers.many), 2), Done)
    finally:
        logging.getLogger("shop.pictures").removeFilter(refuse)
    assert capfd.readouterr().err.count("LookupError: a filter must not do that") == 2


async def test_records_arrive_in_order_however_many_there_are(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    await run(make(handlers.many), 5000)
    assert caplog.messages == [str(number) for number in range(5000)]


async def test_a_child_that_dies_loses_no_record(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    outcome = await run(make(handlers.and_exits))
    assert isinstance(outcome, Failed)
    assert caplog.messages == ["last words"]


async def test_a_child_that_is_killed_loses_no_record(
    make: Make, caplog: pytest.LogCaptureFixture, pid_file: Path
) -> None:
    running = asyncio.create_task(run(make(handlers.and_sleeps), [str(pid_file), 60]))
    os.kill(await pid_in(pid_file), signal.SIGKILL)
    assert isinstance(await running, Failed)
    assert caplog.messages == ["last words"]


async def test_records_arrive_while_the_child_is_idle(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    await run(make(handlers.later))
    await wait_until(
        lambda: caplog.messages == ["later"], within=SOON, sentence="the record arrived"
    )


async def test_a_fork_of_a_child_prints_its_records(
    make: Make, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    assert isinstance(await run(make(handlers.in_a_fork)), Done)
    assert caplog.messages == []
    assert "from a fork" in capfd.readouterr().err


async def test_handlers_that_a_module_adds_when_it_is_imported_are_used_in_the_parent_only(
    make: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "sets_up_its_log.py").write_text("def handler(job): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "sets_up_its_log", raising=False)
    children = make(importlib.import_module("sets_up_its_log").handler)
    (tmp_path / "sets_up_its_log.py").write_text(SETS_UP_ITS_LOG)
    assert await run(children) == Done(None)
    assert "ran" in caplog.messages
    assert "too low" not in caplog.messages
    printed = capfd.readouterr().err
    assert "ran" not in printed
    assert "by a handler of the root" not in printed
