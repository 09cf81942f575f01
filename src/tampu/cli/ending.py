"""How a command ends: its exit code, and one sentence if that is not enough."""

import os
import sys
from enum import IntEnum
from io import TextIOWrapper
from typing import Final

_STDERR: Final = 2


class ExitCode(IntEnum):
    """What a script can rely on."""

    OK = 0
    NO = 1  # the answer is no, or something wrong was found
    USAGE = 2
    SERVER = 3  # unreachable, or it refused
    INTERRUPTED = 130


class Ended(Exception):
    """Ends a command from wherever it is; the sentence goes to standard error."""

    def __init__(self, code: ExitCode, sentence: str = "") -> None:
        self.code, self.sentence = code, sentence
        super().__init__(sentence)


def no(sentence: str) -> Ended:
    """The end of a command whose answer is no."""
    return Ended(ExitCode.NO, sentence)


def have_streams() -> None:
    """Have standard streams that take anything, whatever the locale and the parent left us with.

    What a parent has closed goes nowhere. Left closed, a socket would get its number, which an
    event loop does not survive.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass  # it stays, in the place of one that was closed
    os.close(number)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name) or open(number, "r+", encoding="utf-8")  # noqa: SIM115 - kept
        setattr(sys, name, stream)
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def stop_printing() -> None:
    """Who reads has left, as `head` does: nothing is to be flushed into its place at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
