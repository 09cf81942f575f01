"""A command in a real terminal, as its user has it."""

import codecs
import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.contract.cli import COMMAND, environment


@dataclass
class Terminal:
    """The user's end of a terminal that a command runs in."""

    fd: int
    process: "subprocess.Popen[bytes]"
    seen: str = field(default="")
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=codecs.getincrementaldecoder("utf-8")
    )

    def resize(self, columns: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def until(self, text: str) -> str:
        """What is printed until the text is; it is not seen again."""
        limit = time.monotonic() + 30
        while text not in self.seen:
            left_s = limit - time.monotonic()
            assert left_s > 0, f"{text!r} was not printed: {self.seen[-400:]!r}"
            if select.select([self.fd], [], [], left_s)[0]:
                self.seen += self._decoder.decode(os.read(self.fd, 65_536))
        head, _, self.seen = self.seen.partition(text)
        return head + text

    def type(self, keys: bytes) -> None:
        os.write(self.fd, keys)


@contextmanager
def terminal(
    *args: str, url: str | None, columns: int = 80, cwd: Path | None = None, code: int = 0
) -> Iterator[Terminal]:
    """Run a command in one; it is to end with the code."""
    ours, theirs = pty.openpty()
    env = environment(url) | {"TERM": "xterm-256color"}
    del env["COLUMNS"]
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    before = termios.tcgetattr(theirs)
    process = subprocess.Popen(
        [*COMMAND, *args],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=env,
        cwd=cwd,
        preexec_fn=_control,  # noqa: PLW1509 - the terminal's signals reach whom it controls
    )
    try:
        yield Terminal(ours, process)
        assert process.wait(30) == code
        assert termios.tcgetattr(theirs) == before, "the terminal was not left as it was"
    finally:
        process.kill()
        process.wait()
        os.close(theirs)
        os.close(ours)


def _control() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
