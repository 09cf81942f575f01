"""A worker process, seen from above."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress
from time import monotonic
from typing import Final

from tampu.cli.working.parent import MARKER
from tampu.cli.working.words import Beat, Leaving, Reason, Started, decode_word

_LOOK_AGAIN_S: Final = 0.01
_READ_BYTES: Final = 65_536


def command_again() -> list[str]:
    """What was typed, for a fresh interpreter that looks for no module in this directory."""
    return [sys.executable, "-P", "-m", "tampu.cli", *sys.argv[1:]]


class Child:
    """One worker process from its start to its end, and what it has told.

    It runs in a process group of its own: Ctrl-C is for the process above it, which passes it on.
    """

    def __init__(self, life: int) -> None:
        ours, theirs = os.pipe()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                command_again(),
                env=os.environ | {MARKER: f"{life},{theirs}"},
                pass_fds=(life, theirs),
                stdin=subprocess.DEVNULL,
                process_group=0,
            )
        except OSError:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        os.set_blocking(ours, False)
        self._words, self._rest = ours, b""
        self._settled, self._silent = asyncio.Event(), asyncio.Event()
        self.replaced = asyncio.Event()
        self.started: Started | None = None
        self.started_at = 0.0
        self.leaving: Reason | None = None
        self.beat: Beat | None = None
        self.beat_at = 0.0
        self._ending = asyncio.create_task(self._end(), name="tampu-child")
        asyncio.get_running_loop().add_reader(ours, self._read)

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def is_gone(self) -> bool:
        """Whether it has ended."""
        return self._ending.done()

    async def is_started(self) -> bool:
        """Wait until it works, or has ended without."""
        await self._settled.wait()
        return self.started is not None

    async def ended(self) -> int:
        """Wait for its end; its exit code, or the signal that killed it, below 0."""
        return await asyncio.shield(self._ending)

    def stop(self, limit_s: float | None = None) -> None:
        """Have it end; past the limit it is killed. A second time it ends at once."""
        self._signal(signal.SIGTERM)
        if limit_s is not None:
            asyncio.get_running_loop().call_later(limit_s, self.kill)

    def kill(self) -> None:
        """End it, if it still lives."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if not self.is_gone:
            self._process.send_signal(number)

    async def _end(self) -> int:
        await self._silent.wait()
        # Its pipe closes a moment before it is gone.
        while (code := self._process.poll()) is None:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(_LOOK_AGAIN_S)
        self._settled.set()
        return code

    def _read(self) -> None:
        with suppress(BlockingIOError):
            found = os.read(self._words, _READ_BYTES)
            if not found:
                asyncio.get_running_loop().remove_reader(self._words)
                os.close(self._words)
                self._silent.set()
            *lines, self._rest = (self._rest + found).split(b"\n")
            for line in lines:
                self._heard(line)

    def _heard(self, line: bytes) -> None:
        word = decode_word(line)
        if isinstance(word, Started):
            self.started, self.started_at = word, monotonic()
            self._settled.set()
        elif isinstance(word, Beat):
            self.beat, self.beat_at = word, monotonic()
        elif isinstance(word, Leaving):
            self.leaving = word.reason
