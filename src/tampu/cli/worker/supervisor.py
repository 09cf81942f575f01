"""The supervisor: starts worker processes, replaces those that end, and stops them."""

import asyncio
import logging
import os
import signal
import sys
import sysconfig
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from enum import Enum, auto
from importlib.machinery import PathFinder
from pathlib import Path
from time import monotonic
from typing import Any, Final

from tampu.admin.metrics import LIMIT_S, MetricsPage
from tampu.cli.output import CommandFailed, ExitCode
from tampu.cli.signals import ExitReason, StopRequest, wait_for_any
from tampu.cli.worker.health import TOO_SILENT_S, Answers, HealthReport, show_health
from tampu.cli.worker.messages import ManagedProcess, ProcessStarted
from tampu.cli.worker.options import WorkerCommandOptions
from tampu.consumer.runners.child_process import describe_exit
from tampu.util.pauses import Pauses

logger = logging.getLogger("tampu.supervisor")

HEALTHY_S: Final = 60.0
"""After a process ran for this long, earlier failures in its slot are forgotten."""

_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 30.0
_CHECK_FILES_EVERY_S: Final = 0.2
_BEYOND_GRACE_S: Final = 30.0
_NO_ROOM_PAUSE_S: Final = 1.0
_LEFT_OUT: Final = {"__pycache__", "node_modules", "site-packages"}


class NextStep(Enum):
    """What follows the end of a worker process."""

    RESTART_NOW = auto()
    RESTART_AFTER_PAUSE = auto()
    WAIT_FOR_CHANGE = auto()  # it fails with the code as it is
    LEAVE = auto()  # it was meant to end


def next_step(code: int, reason: ExitReason | None, *, reload: bool) -> NextStep:
    """Decide from the exit code of a process and the reason that it gave."""
    if code == 0 and reason in {ExitReason.EMPTY, ExitReason.DRAINED}:
        return NextStep.LEAVE
    if code == 0 and reason is ExitReason.RECYCLED:
        return NextStep.RESTART_NOW
    return NextStep.WAIT_FOR_CHANGE if reload else NextStep.RESTART_AFTER_PAUSE


class ProcessSlot:
    """One of the processes that are to run: the current one, and the pauses between failures."""

    def __init__(self) -> None:
        self.process: ManagedProcess | None = None
        self._pauses = Pauses(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)

    def pause_s(self, worked_s: float) -> float:
        """The pause after a failure of a process that ran for so long."""
        if worked_s >= HEALTHY_S:
            self._pauses.reset()
        return self._pauses.next_s()

    def forget_failures(self) -> None:
        """Start again with a short pause."""
        self._pauses.reset()


class Supervisor:
    """Keeps as many worker processes running as were asked for. Can be used once.

    SIGTERM and SIGINT stop them with the grace period, a second signal stops them at once. SIGHUP
    replaces them one by one. If this process is killed, they notice and stop by themselves.
    """

    def __init__(
        self, options: WorkerCommandOptions, show: Callable[[ProcessStarted], None]
    ) -> None:
        self._options = options
        self._show = show
        self._stop_request = StopRequest()
        self._replace_all = asyncio.Event()
        self._slots = [ProcessSlot() for _ in range(options.processes.count)]
        self._alive: set[ManagedProcess] = set()
        self._grace_s = 0.0
        self._has_begun = False
        self._failure: CommandFailed | None = None
        self._life, self._held = os.pipe()
        self._watchers = asyncio.TaskGroup()

    async def run(self) -> None:
        """Run until all processes have ended; `CommandFailed` if the first one does not start."""
        with self._stop_request.listen():
            async with (
                show_health(self._options.health, Answers(self._health, self._metrics)),
                self._background(),
                self._watchers,
            ):
                first, *others = self._slots
                if await self._start_first(first):
                    for slot in others:
                        self._watchers.create_task(self._fill(slot, None), name="tampu-fill")
        if self._failure is not None:
            raise self._failure
        logger.info("stopped")

    async def _start_first(self, slot: ProcessSlot) -> bool:
        """Start one process alone, so that an error in the app is shown once."""
        if not self._start(slot):
            self._failure = CommandFailed()
        while (process := slot.process) is not None and not self._is_stopping:
            started = await process.wait_started()
            if started is not None:
                self._has_begun = True
                self._grace_s = started.grace_s
                self._show(started)
                return True
            if not self._options.processes.reload and not self._is_stopping:
                self._failure = _failed_start(await process.wait_ended())
                return False
            await wait_for_any(process.replaced, self._stop_request.requested)
        return False

    @property
    def _is_stopping(self) -> bool:
        return self._stop_request.requested.is_set()

    @asynccontextmanager
    async def _background(self) -> AsyncIterator[None]:
        """Listen for signals and changed files, until there is no process left."""
        others: list[Coroutine[Any, Any, None]] = [self._stop_on_request(), self._replace_on_hup()]
        if self._options.processes.reload:
            others.append(self._restart_on_change())
        loop = asyncio.get_running_loop()
        tasks = [asyncio.create_task(each, name="tampu-supervisor") for each in others]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores it
            loop.add_signal_handler(signal.SIGHUP, self._replace_all.set)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGHUP)
            for each in tasks:
                each.cancel()
            await asyncio.wait(tasks)
            os.close(self._held)
            os.close(self._life)

    # --- one process ----------------------------------------------------------------------------

    def _start(self, slot: ProcessSlot) -> bool:
        """Start a process in a slot; False if the system has no room for one."""
        process = self._launch(slot)
        if process is None:
            return False
        slot.process = process
        return True

    def _launch(self, slot: ProcessSlot) -> ManagedProcess | None:
        try:
            process = ManagedProcess(self._life)
        except OSError as error:
            problem = error.strerror
            logger.error(  # noqa: TRY400 - not a bug, so no traceback
                "cannot start a worker process: %s", problem, extra={"problem": problem}
            )
            return None
        self._alive.add(process)
        self._watchers.create_task(self._watch(slot, process), name="tampu-watch")
        return process

    async def _fill(self, slot: ProcessSlot, before: ManagedProcess | None) -> None:
        """Start a process in an empty slot, as soon as the system has room for one."""
        while self._is_empty(slot, before) and not self._start(slot):
            await wait_for_any(self._stop_request.requested, timeout_s=_NO_ROOM_PAUSE_S)

    async def _watch(self, slot: ProcessSlot, process: ManagedProcess) -> None:
        """Wait for the end of a process, and do what follows."""
        code = await process.wait_ended()
        self._alive.discard(process)
        if not self._is_empty(slot, process):
            return
        reload = self._options.processes.reload
        facts = {"ended_pid": process.pid, "exit_code": code}
        ended = f"worker process {process.pid} ended with {describe_exit(code)}"
        match next_step(code, process.exit_reason, reload=reload):
            case NextStep.RESTART_NOW:
                slot.forget_failures()
                await self._fill(slot, process)
            case NextStep.RESTART_AFTER_PAUSE:
                worked_s = monotonic() - process.started_at if process.started else 0.0
                pause_s = slot.pause_s(worked_s)
                logger.error("%s; starting another in %g s", ended, pause_s, extra=facts)
                await wait_for_any(
                    self._stop_request.requested, process.replaced, timeout_s=pause_s
                )
                await self._fill(slot, process)
            case NextStep.WAIT_FOR_CHANGE:
                logger.error("%s; waiting for a file to change", ended, extra=facts)
                await wait_for_any(self._stop_request.requested, process.replaced)
            case NextStep.LEAVE:
                pass

    def _is_empty(self, slot: ProcessSlot, process: ManagedProcess | None) -> bool:
        """Whether a slot needs a process in place of this one."""
        begun = self._has_begun or self._options.processes.reload
        return begun and slot.process is process and not self._is_stopping

    def _retire(self, process: ManagedProcess) -> None:
        """Stop a process that another one has replaced."""
        process.replaced.set()
        process.stop(self._grace_s + _BEYOND_GRACE_S)

    # --- all processes --------------------------------------------------------------------------

    async def _stop_on_request(self) -> None:
        """Pass the signals on."""
        await self._stop_request.requested.wait()
        count, grace_s = len(self._alive), self._grace_s
        facts = {"processes": count, "grace_s": grace_s}
        text = "stopping %d worker processes; running jobs get %g s to finish"
        logger.info(text, count, grace_s, extra=facts)
        for process in list(self._alive):
            process.stop(grace_s + _BEYOND_GRACE_S)
        await self._stop_request.forced.wait()
        for process in list(self._alive):
            process.stop()

    async def _replace_on_hup(self) -> None:
        while True:
            await self._replace_all.wait()
            self._replace_all.clear()
            logger.info("replacing all worker processes, one by one")
            for slot in self._slots:
                if not await self._replace(slot):
                    break
            else:
                logger.info("replaced all worker processes")

    async def _replace(self, slot: ProcessSlot) -> bool:
        """Start a new process in a slot and stop the old one when the new one runs."""
        old = slot.process
        if old is None or self._is_stopping:
            return False
        new = self._launch(slot)
        if new is None or await new.wait_started() is None or new.has_ended:
            if not self._is_stopping:
                logger.error("a new worker process did not start; keeping the old ones")
            return False
        slot.process = new
        slot.forget_failures()
        self._retire(old)
        await old.wait_ended()
        return True

    async def _restart_on_change(self) -> None:
        chosen = self._options.processes.reload_dir
        changes = FileChanges(Path(chosen) if chosen else directory_of(self._options.target))
        while True:
            await asyncio.sleep(_CHECK_FILES_EVERY_S)
            changed = changes.check()
            if changed and not self._is_stopping:
                names = ", ".join(path.name for path in changed[:3])
                logger.info("restarting after changes in %s", names, extra={"files": names})
                for slot in self._slots:
                    self._restart(slot)

    def _restart(self, slot: ProcessSlot) -> None:
        """Start the new code at once; running jobs of the old process get the grace period."""
        old = slot.process
        if old is not None and self._start(slot):
            self._retire(old)

    def _health(self) -> HealthReport:
        now = monotonic()
        started = [each for slot in self._slots if (each := slot.process) and each.started]
        heartbeats = [(each.heartbeat, now - each.heartbeat_at) for each in started]
        known = [(heartbeat, ago_s) for heartbeat, ago_s in heartbeats if heartbeat]
        seen = [heartbeat.silent_s + ago_s for heartbeat, ago_s in known]
        return HealthReport(
            live=all(ago_s < TOO_SILENT_S for _, ago_s in known),
            started=len(started) == len(self._slots),
            stopping=self._is_stopping,
            running=sum(heartbeat.running for heartbeat, _ in known),
            processes=len(self._alive),
            server_seen_s_ago=max(seen) if seen else None,
        )

    async def _metrics(self) -> MetricsPage:
        """The metrics of the whole fleet, which any of the processes can read."""
        started = [each for slot in self._slots if (each := slot.process) and each.started]
        if not started:
            return MetricsPage("", "no worker process has started")
        liveliest = max(started, key=lambda each: each.heartbeat_at)
        return await liveliest.ask_metrics(LIMIT_S + 1)


def _failed_start(code: int) -> CommandFailed:
    """The error for a first process that never ran; it has said itself why, if it could."""
    if code in set(ExitCode):
        return CommandFailed(code=ExitCode(code))
    return CommandFailed(f"The first worker process did not start: {describe_exit(code)}.")


# --- changed files, for --reload ------------------------------------------------------------------


def directory_of(target: str) -> Path:
    """The directory of the app's top module or package; an installed package is its own."""
    top = target.partition(":")[0].partition(".")[0]
    # Finds it as the worker does, but imports nothing.
    spec = PathFinder.find_spec(top, [os.getcwd(), *sys.path]) if top else None
    if spec is None or not spec.has_location or spec.origin is None:
        return Path.cwd()  # it does not exist yet, or is a package without an __init__.py
    module = Path(spec.origin)
    home = module.parent.parent if spec.submodule_search_locations else module.parent
    return module.parent if home == Path(sysconfig.get_path("purelib")) else home


class FileChanges:
    """Finds changed files below a directory, without virtual environments and hidden folders."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known = dict(_stamps(directory))

    def check(self) -> list[Path]:
        """The files that were added, changed or removed since the last check."""
        before, self._known = self._known, dict(_stamps(self._directory))
        paths = before.keys() | self._known.keys()
        return sorted(Path(each) for each in paths if before.get(each) != self._known.get(each))


def _stamps(directory: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    for folder, folders, files in os.walk(directory):
        folders[:] = [each for each in folders if _is_source(os.path.join(folder, each), each)]
        for name in files:
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                try:
                    found = os.stat(path)
                except OSError:
                    continue  # removed since it was listed
                yield path, (found.st_mtime_ns, found.st_size)


def _is_source(path: str, name: str) -> bool:
    hidden = name.startswith(".") or name in _LEFT_OUT
    return not hidden and not os.path.exists(os.path.join(path, "pyvenv.cfg"))
