"""A worker in a process of its own, which can be killed, stopped and let go on.

Run as a module it is that process; `WorkerProcess` starts one and holds it.
"""

import argparse
import asyncio
import ctypes
import logging
import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter
from typing import Any, Self

from tampu import Backoff, Batch, Bury, Handler, Job, JobBatch, Retry, Snooze
from tampu.consumer.cancellations import Cancellations
from tampu.worker import Worker
from tests.faults.ledger import Ledger
from tests.servers import ROOT
from tests.waiting import wait_until

START_LIMIT_S = 30.0
SKIP_EVERY = "TAMPU_FAULTS_SKIP_EVERY"  # of as many jobs one is acknowledged without being run
_LONGEST_S = 60.0
_HELD_S = 3.3  # at least
_SAMPLE_S = 0.02


def gate_of(ledger: Ledger, number: int) -> Path:
    """The file whose being there opens a gate."""
    return ledger.path.with_suffix(f".gate-{number}")


class Handlers:
    """What handlers do, by the job's name; all of it is in the ledger."""

    def __init__(self, ledger: Ledger, worker: Callable[[], str]) -> None:
        self._ledger = ledger
        self._worker = worker

    def by_name(self) -> dict[str, Callable[[Job[Any]], Awaitable[object]]]:
        """The handlers."""
        handlers = (
            *(self.short, self.gated, self.hang, self.stay, self.value),
            *(self.bury, self.retry, self.snooze, self.hold),
            *(self.exit, self.kill, self.segfault),
        )
        return {handler.__name__: self._recorded(handler) for handler in handlers}

    def _recorded(
        self, handler: Callable[[Job[Any]], Awaitable[object]]
    ) -> Callable[[Job[Any]], Awaitable[object]]:
        skips = int(os.environ.get(SKIP_EVERY, "0"))

        async def recorded(job: Job[Any]) -> object:
            if skips and int(job.data) % skips == 0:
                return None
            worker = self._worker()
            self._ledger.started(job, worker)
            try:
                value = await handler(job)
            except Exception:
                self._ledger.failed(job, worker)
                raise
            self._ledger.done(job, worker)
            return value

        return recorded

    async def batch(self, batch: JobBatch[Any]) -> None:
        """Some milliseconds of work; every third job is settled alone."""
        worker = self._worker()
        for job in batch:
            self._ledger.started(job, worker)
        for job in batch:
            await asyncio.sleep(0.001)
            self._ledger.done(job, worker)
            if job.data % 3 == 0:
                batch.done(job)

    async def short(self, job: Job[Any]) -> None:
        """A millisecond of work."""
        await asyncio.sleep(0.001)

    async def gated(self, job: Job[Any]) -> None:
        """The same, for a job with a limit."""
        await self.short(job)

    async def stay(self, job: Job[Any]) -> None:
        """Never done, in no attempt: somebody cancels it."""
        await asyncio.sleep(_LONGEST_S)
        raise AssertionError("nobody has cancelled it")

    async def hang(self, job: Job[Any]) -> None:
        """Never done in the first attempt, done at once in any other."""
        if job.attempt == 1:
            await asyncio.sleep(_LONGEST_S)

    async def value(self, job: Job[Any]) -> str:
        """Return who ran it."""
        await self._pass_gate(job)
        return self._worker()

    async def bury(self, job: Job[Any]) -> None:
        """Ask to be buried."""
        await self._pass_gate(job)
        raise Bury("as it was told to")

    async def retry(self, job: Job[Any]) -> None:
        """Fail in the first two attempts."""
        await self._pass_gate(job)
        if job.attempt <= 2:
            raise Retry("as it was told to", after=0.05)

    async def snooze(self, job: Job[Any]) -> None:
        """Come back later once, whoever runs it then."""
        seen = self._ledger.path.with_suffix(f".snoozed-{job.data}")
        if not seen.exists():
            seen.touch()
            raise Snooze(0.05)

    async def _pass_gate(self, job: Job[Any]) -> None:
        """The first attempt waits for gate 1; the second, of every other job, for gate 2."""
        if job.attempt == 1 or (job.attempt == 2 and job.data % 2):
            gate = gate_of(self._ledger, job.attempt)
            await wait_until(gate.exists, within=_LONGEST_S, sentence="the gate is open")

    async def hold(self, job: Job[Any]) -> None:
        """One call into C that keeps the interpreter to itself for longer than others wait."""
        length, took_s = 18, 0.0
        while took_s < _HELD_S:  # a letter more takes twice as long
            length += 1 if took_s < _SAMPLE_S else math.ceil(math.log2(_HELD_S / took_s))
            began = perf_counter()
            re.match(r"(a+)+$", "a" * length + "b")
            took_s = perf_counter() - began

    async def exit(self, job: Job[Any]) -> None:
        """End the process without a word."""
        os._exit(1)

    async def kill(self, job: Job[Any]) -> None:
        """As the system does to who takes too much memory."""
        os.kill(os.getpid(), signal.SIGKILL)

    async def segfault(self, job: Job[Any]) -> None:
        """As a bad extension does."""
        ctypes.string_at(0)


class WorkerProcess:
    """A worker process that the test started; `id` is its worker's."""

    def __init__(self, process: "subprocess.Popen[str]", ledger: Ledger, errors: Path) -> None:
        self.process = process
        self.id = ""
        self._ledger = ledger
        self._errors = errors

    @classmethod
    async def start(
        cls, url: str, queue: str, ledger: Ledger, *, skip_every: int = 0, **options: object
    ) -> Self:
        """Start one, and return when it works."""
        told = [f"--{name.replace('_', '-')}={given}" for name, given in options.items()]
        command = [sys.executable, "-m", __name__, url, queue, str(ledger.path), *told]
        errors = ledger.path.with_suffix(f".{os.urandom(4).hex()}.err")
        process = _spawn(command, os.environ | {SKIP_EVERY: str(skip_every)}, errors)
        started = cls(process, ledger, errors)
        assert process.stdout is not None
        async with asyncio.timeout(START_LIMIT_S):
            started.id = (await asyncio.to_thread(process.stdout.readline)).strip()
        assert started.id, errors.read_text()
        return started

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    async def kill(self) -> None:
        """As kill -9 does it."""
        self.process.kill()
        await self.gone()

    async def gone(self) -> None:
        """Wait until it has died, by whatever hand; what it held may run again."""
        await asyncio.to_thread(self.process.wait, _LONGEST_S)
        self._ledger.fault(self.id)

    def pause(self) -> None:
        """Stop it without ending it."""
        self.process.send_signal(signal.SIGSTOP)
        self._ledger.fault(self.id)

    def resume(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)

    async def stop(self) -> None:
        """Let it end in good order; it must have had nothing to complain about."""
        self.process.terminate()
        assert await asyncio.to_thread(self.process.wait, _LONGEST_S) == 0
        assert "Traceback" not in self._errors.read_text(), self._errors.read_text()

    def end(self) -> None:
        """End it if it still runs."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def _spawn(command: list[str], env: dict[str, str], errors: Path) -> "subprocess.Popen[str]":
    with errors.open("wb") as file:
        return subprocess.Popen(
            command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=file, text=True
        )


async def _work(options: argparse.Namespace) -> None:
    ledger = Ledger(options.ledger)
    handlers = Handlers(ledger, lambda: worker.id)
    by_name: dict[str, Any] = {**handlers.by_name()}
    if options.batch:
        batch = Batch(options.batch, wait="20ms", by=lambda data: data % 4)
        by_name["batch"] = Handler(handlers.batch, batch=batch)
    worker = Worker(
        options.queue,
        by_name,
        options.url,
        concurrency=options.concurrency,
        lease=options.lease,
        backoff=Backoff.fixed(0.05),
        store_results=options.store_results == "True",
    )
    if options.deaf == "True":
        Cancellations.note = lambda self, request: None  # type: ignore[method-assign]
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    async with worker:
        print(worker.id, flush=True)  # noqa: T201 - what the test waits for
        await stopping.wait()
    ledger.close()


def main() -> None:
    """Work until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("queue")
    parser.add_argument("ledger", type=Path)
    parser.add_argument("--concurrency", type=int, default=100)
    parser.add_argument("--batch", type=int, default=0, help="jobs of a batch")
    parser.add_argument("--lease", default="30s")
    parser.add_argument("--store-results", default="False")
    parser.add_argument("--deaf", default="False", help="ignore requests to cancel jobs")
    # Some handlers fail on purpose: only other tracebacks are a reason to fail a test.
    logging.getLogger("tampu.consumer.reporter").setLevel(logging.ERROR)
    asyncio.run(_work(parser.parse_args()))


if __name__ == "__main__":
    main()
