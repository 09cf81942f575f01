"""Runs jobs in children, and checks what they leave."""

import os
from collections.abc import Callable
from pathlib import Path

from tampu.consumer.runners.child import ChildRequest, Report
from tampu.consumer.runners.children import Children
from tampu.outcome import Done, Outcome
from tampu.wire.payload import encode_payload
from tests.waiting import wait_until

Make = Callable[..., Children]


def request(data: object) -> ChildRequest:
    payload = encode_payload(data, max_bytes=1 << 30)
    return ChildRequest(job_id="1", name="n", payload=payload, attempt=1, created_at_ms=0)


async def run(children: Children, data: object = None) -> Outcome:
    """The outcome of one job, without a time limit."""
    return await children.run(request(data), timeout_s=None, on_report=unexpected)


async def value_of(children: Children, data: object = None) -> object:
    outcome = await run(children, data)
    assert isinstance(outcome, Done), outcome
    return outcome.value


async def pid_of(children: Children, data: object = None) -> int:
    pid = await value_of(children, data)
    assert isinstance(pid, int)
    return pid


def unexpected(report: Report, answer: object) -> None:
    raise AssertionError(report)


async def pid_in(file: Path) -> int:
    """Wait for the pid that a handler writes."""
    await wait_until(file.exists, within=60, sentence="the handler runs")
    return _number_in(file)


def _number_in(file: Path) -> int:
    return int(file.read_text())


def is_gone(pid: int) -> bool:
    """Whether the process has ended and not even a zombie is left."""
    return not Path(f"/proc/{pid}").exists()


def children_of_this_process() -> set[int]:
    tasks = Path("/proc/self/task").iterdir()
    return {int(pid) for task in tasks for pid in (task / "children").read_text().split()}


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))
