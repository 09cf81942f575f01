"""Children of programs: what needs a `__main__` of its own, or a parent that may be killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.waiting import block_until

HEAD = """
import asyncio, os, sys, time
from tampu.consumer.runners.child import ChildRequest
from tampu.consumer.runners.children import Children

class Odd(Exception):
    pass

def handler(job):
    os.write(1, f"child {os.getpid()}\\n".encode())  # in one piece: children print at the same time
    if job.data == "raise":
        raise Odd("here")
    if job.data == "sleep":
        time.sleep(60)

def run(children, data):
    payload = bytes([0xA0 + len(data)]) + data.encode()
    request = ChildRequest(job_id="1", name="n", payload=payload, attempt=1, created_at_ms=0)
    return children.run(request, timeout_s=None, on_report=print)
"""

Program = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    """Start a script that consists of HEAD and a body."""
    started: list[subprocess.Popen[str]] = []

    def start(body: str) -> subprocess.Popen[str]:
        script = tmp_path / "script.py"
        script.write_text(HEAD + body)
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            [sys.executable, str(script)], stdout=pipe, stderr=pipe, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def pids_printed(process: "subprocess.Popen[str]", count: int) -> list[int]:
    assert process.stdout is not None
    return [int(process.stdout.readline().split()[1]) for _ in range(count)]


def has_ended(pid: int) -> bool:
    """Whether it has ended; a zombie only waits for its new parent."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] in {"Z", "X"}


def test_a_handler_of_the_script_itself_runs_and_its_errors_keep_their_name(
    program: Program,
) -> None:
    process = program("""
async def main():
    children = Children(handler, limit=1)
    print((await run(children, "raise")).failure.error_type)
    await children.close()

if __name__ == "__main__":
    asyncio.run(main())
""")
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    assert out.splitlines()[1:] == ["__main__.Odd"]


def test_children_end_with_a_killed_parent_busy_or_idle(program: Program) -> None:
    process = program("""
async def main():
    children = Children(handler, limit=3)
    await asyncio.gather(*(run(children, data) for data in ("", "sleep", "sleep")))

if __name__ == "__main__":
    asyncio.run(main())
""")
    pids = pids_printed(process, 3)
    assert len(set(pids)) == 3
    assert not any(map(has_ended, pids))
    os.kill(process.pid, signal.SIGKILL)
    block_until(lambda: all(map(has_ended, pids)), within=60, sentence="the children have ended")


def test_a_program_that_forgets_to_close_still_ends(program: Program) -> None:
    process = program("""
async def main():
    children = Children(handler, limit=2)
    await run(children, "")
    asyncio.create_task(run(children, "sleep"))
    await asyncio.sleep(0.1)
    return children

if __name__ == "__main__":
    loop = asyncio.new_event_loop()
    kept = loop.run_until_complete(main())
""")
    pids = pids_printed(process, 1)
    process.communicate(timeout=30)
    block_until(lambda: all(map(has_ended, pids)), within=60, sentence="the child has ended")


def test_a_script_that_cannot_be_imported_again_says_so(program: Program) -> None:
    process = program("""
async def main():
    children = Children(handler, limit=1)
    print((await run(children, "")).failure.message)
    await children.close()

if __name__ != "__main__":
    raise RuntimeError("only once")
asyncio.run(main())
""")
    out, err = process.communicate(timeout=30)
    assert out.strip() == (
        "the child process ended with exit code 1 while it started; its standard error says why"
    )
    assert "RuntimeError: only once" in err
