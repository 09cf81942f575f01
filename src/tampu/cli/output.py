"""How a command ends, and text that is safe to print. Imports nothing that is slow to import."""

import os
import re
import signal
import sys
from enum import IntEnum
from io import TextIOWrapper
from typing import Final

_STDERR: Final = 2
# Control characters, line separators, direction marks and lone surrogates.
_UNSAFE: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


class ExitCode(IntEnum):
    """The exit codes that scripts can rely on."""

    OK = 0
    FAILED = 1  # not found, a job that failed, a time limit, a failed check
    USAGE = 2
    SERVER = 3  # unreachable, or it refused a command
    INTERRUPTED = 130


class CommandFailed(Exception):
    """Ends a command with an exit code; the sentence goes to standard error."""

    def __init__(self, sentence: str = "", *, code: ExitCode = ExitCode.FAILED) -> None:
        self.sentence, self.code = sentence, code
        super().__init__(sentence)


def usage_error(sentence: str) -> CommandFailed:
    """The error for a command that was typed wrongly."""
    return CommandFailed(sentence, code=ExitCode.USAGE)


def escape_controls(text: str) -> str:
    r"""The text with JSON escapes such as \u001b for whatever a terminal would act on.

    Names, errors and data come from whoever adds jobs. Line ends and tabs stay.
    """
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def print_error(sentence: str) -> None:
    """Print one line on standard error."""
    sys.stderr.write(f"tampu: {' '.join(escape_controls(sentence).splitlines())}\n")


def confirm(question: str, *, yes: bool) -> None:
    """Ask the user, unless they already said yes; anything but yes ends the command."""
    if not yes and _ask(question).strip().lower() not in {"y", "yes"}:
        raise CommandFailed("Nothing was changed.")


def _ask(question: str) -> str:
    """Read a line. Ctrl-C ends the command at once, since the event loop is blocked meanwhile."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sys.stderr.write(f"{question} [y/N] ")
        sys.stderr.flush()
        return sys.stdin.readline()
    finally:
        signal.signal(signal.SIGINT, before)


def ensure_streams() -> None:
    """Make sure that the standard streams exist and can carry every character.

    A stream that the parent closed is opened on /dev/null. Otherwise a socket would get its number,
    which breaks the event loop.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass  # stays open in place of the closed stream
    os.close(number)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name) or open(number, "r+", encoding="utf-8")  # noqa: SIM115 - kept
        setattr(sys, name, stream)
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def discard_output() -> None:
    """Send the rest of standard output nowhere, after its reader has left, as `head` does."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
