"""Handlers that child processes can import."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from contextvars import ContextVar
from typing import Any

from tampu.job import Job, current_job
from tampu.limits import RateLimited
from tampu.outcome import Bury, Retry, Snooze, Unrecoverable

AnyJob = Job[Any]
_seen: ContextVar[str] = ContextVar("seen", default="nothing")


class Refused(Unrecoverable):
    pass


def echo(job: AnyJob) -> object:
    return job.data


async def echo_async(job: AnyJob) -> object:
    await asyncio.sleep(0)
    return job.data


class Doubling:
    async def __call__(self, job: AnyJob) -> object:
        return job.data * 2


def nothing(job: AnyJob) -> None:
    pass


async def facts(job: AnyJob) -> object:
    same = current_job() is job
    return [job.id, job.name, job.data, job.attempt, job.created_at_ms, job.tenant, same]


def pid(job: AnyJob) -> int:
    return os.getpid()


async def pid_of_busy(job: AnyJob) -> int:
    await asyncio.sleep(0.002)
    return os.getpid()


async def loop_and_context(job: AnyJob) -> object:
    """Its loop, and what an earlier job left in the context."""
    before = _seen.get()
    _seen.set(job.data)
    return [id(asyncio.get_running_loop()), before]


ERRORS: dict[str, BaseException] = {
    "retry": Retry("later", after=3),
    "snooze": Snooze(4),
    "limit": RateLimited(3, limit="stripe"),
    "bury": Bury("enough"),
    "refused": Refused("no"),
    "exit": SystemExit(7),
    "interrupt": KeyboardInterrupt(),
    "text": ValueError("é \ud800"),
}


async def raises(job: AnyJob) -> object:
    if job.data == "depth":
        return _fall(0)
    raise ERRORS[job.data]


def returns_bury(job: AnyJob) -> object:
    return Bury("enough")


def raises_plain(job: AnyJob) -> object:
    if job.data == "exit":
        sys.exit(7)
    if job.data == "depth":
        return _fall(0)
    raise LookupError("plain")


def _fall(depth: int) -> int:
    return _fall(depth + 1) + 1


def crashes(job: AnyJob) -> object:
    match job.data:
        case "exit":
            os._exit(3)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            ctypes.string_at(0)
        case "fork":
            if os.fork() == 0:
                time.sleep(5)
                os._exit(0)
            os._exit(4)
        case "closes":
            os.closerange(3, 256)
        case _:
            pass
    return os.getpid()


def sleeps(job: AnyJob) -> int:
    """As long as told; says its pid through a file first."""
    path, seconds = job.data
    with open(path + ".new", "w") as file:
        file.write(str(os.getpid()))
    os.replace(path + ".new", path)
    time.sleep(seconds)
    return os.getpid()


def prints(job: AnyJob) -> str:
    print("x" * 100_000)  # noqa: T201
    sys.stderr.write("y" * 1000)
    os.write(1, b"\x00\x00\x00\x05hello")
    return "printed" + sys.stdin.read()


async def progresses(job: AnyJob) -> str:
    job.progress(10)
    job.progress(500)
    return "there"


def progresses_plain(job: AnyJob) -> str:
    job.progress(30)
    return "there"


def progresses_late(job: AnyJob) -> object:
    """The first job leaves a thread that reports when the second one runs."""
    if job.data == "leave":
        threading.Thread(target=_report_when_set, args=(job,), daemon=True).start()
        return None
    _second_runs.set()
    _reported.wait(20)
    return _reported.is_set()


_second_runs = threading.Event()
_reported = threading.Event()


def _report_when_set(job: AnyJob) -> None:
    _second_runs.wait(20)
    job.progress(99)
    _reported.set()


async def waits_for_itself(job: AnyJob) -> object:
    return await job.result()


def unencodable(job: AnyJob) -> object:
    return object() if job.data == "object" else b"x" * (64 * 1024 * 1024 + 1)


def large(job: AnyJob) -> bytes:
    return bytes(job.data)


def signals_itself(job: AnyJob) -> str:
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)
    return "alive"


def ends_a_program(job: AnyJob) -> int:
    program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    program.terminate()
    try:
        return program.wait(10)
    finally:
        program.kill()


def leaves_a_thread(job: AnyJob) -> None:
    """A thread that keeps the process from ending by itself."""
    threading.Thread(target=time.sleep, args=(60,)).start()
