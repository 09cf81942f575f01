"""The child processes that run one handler."""

import asyncio
import atexit
import pickle

from tampu.consumer.handler import Function
from tampu.consumer.runners.child import ChildRequest
from tampu.consumer.runners.child_process import ChildEnded, ChildProcess, OnReport
from tampu.errors import OptionError
from tampu.outcome import Failed, Outcome, Released, outcome_of_error
from tampu.util.options import at_least
from tampu.wire.dead import Failure


class Children:
    """At most `limit` child processes that run one handler.

    One is started when a job finds none idle; the one that became idle last is used first. Raises
    `OptionError` for a function that a child cannot import.
    """

    def __init__(self, function: Function, *, limit: int) -> None:
        at_least("limit", limit, 1)
        self._reference = _reference_to(function)
        self._slots = asyncio.Semaphore(limit)
        self._children: set[ChildProcess] = set()
        self._idle: list[ChildProcess] = []
        self._none_left = asyncio.Event()
        self._closed = False

    async def run(
        self,
        request: ChildRequest,
        *,
        timeout_s: float | None,
        on_report: OnReport,
    ) -> Outcome:
        """Run the handler for one job in a child; raises nothing but cancellation.

        The time limit starts when a child is ready for the job. If it passes, the child is killed
        and the attempt fails; it also fails if the child ends by itself. Cancelling kills the
        child. A run that `close` interrupts is `Released`.
        """
        async with self._slots:
            while not self._closed:
                idle = self._idle.pop() if self._idle else None
                try:
                    child = idle or self._start()
                except Exception as error:  # noqa: BLE001 - for instance: too many processes
                    return outcome_of_error(error)
                try:
                    return await child.run(request, timeout_s, on_report)
                except ChildEnded as ended:
                    if idle is None or ended.took_job:
                        return self._outcome_of_end(str(ended))
                finally:
                    self._put_back(child)
            return Released()

    async def close(self) -> None:
        """End idle children, kill busy ones, and wait until all have ended."""
        self._closed = True
        for child in self._children.difference(self._idle):
            child.kill()  # `run` notices that and releases it
        while self._idle:
            self._idle.pop().dismiss()
        if self._children:
            await self._none_left.wait()
        atexit.unregister(self._kill_all)

    def _outcome_of_end(self, how: str) -> Outcome:
        return Released() if self._closed else Failed(Failure("ProcessCrashed", how))

    def _start(self) -> ChildProcess:
        child = ChildProcess(self._reference, self._forget)
        if not self._children:
            # When the program exits, multiprocessing waits for its processes, and ours wait for
            # the program to end. The last function to be registered runs first, so register now.
            atexit.unregister(self._kill_all)
            atexit.register(self._kill_all)
        self._children.add(child)
        self._none_left.clear()
        return child

    def _put_back(self, child: ChildProcess) -> None:
        if child.idle and not self._closed:
            self._idle.append(child)
        else:
            child.kill()
            child.release()

    def _forget(self, child: ChildProcess) -> None:
        self._children.discard(child)
        if not self._children:
            self._none_left.set()

    def _kill_all(self) -> None:
        for child in self._children:
            child.kill()


def _reference_to(function: Function) -> bytes:
    """The pickled function: its name, by which a child imports it."""
    try:
        return pickle.dumps(function)
    except Exception:  # noqa: BLE001 - three kinds for functions, any for other callables
        raise OptionError(
            "handler",
            function,
            'with isolation="process" it must be importable by a child process: a function '
            "at the top of a module, not a lambda and not inside another function",
        ) from None
