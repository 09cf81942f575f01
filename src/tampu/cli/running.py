"""Runs a command in an event loop of its own."""

import asyncio
import logging
import signal
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from tampu.cli.ending import stop_printing
from tampu.cli.visible import visible

try:
    import uvloop
except ImportError:  # not for every platform
    new_event_loop = asyncio.new_event_loop
else:
    new_event_loop = uvloop.new_event_loop


def run(running: Coroutine[Any, Any, None], *, notes: bool = True) -> None:
    """Run it to its end. Ctrl-C cancels it, and then raises KeyboardInterrupt.

    With `notes` the library's warnings go to standard error; a command with a log has them there.
    """
    if notes:
        logging.getLogger("tampu").addHandler(_Notes())
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(running)
    except BrokenPipeError:  # here, since typer would make an error of it
        stop_printing()


class _Notes(logging.Handler):
    """What the library warns of, as one line on standard error."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        problem = getattr(record, "problem", None)
        told = f"{record.getMessage()} ({problem})" if problem else record.getMessage()
        sys.stderr.write(f"tampu: {visible(told)}\n")


@contextmanager
def told_to_stop(*signals: signal.Signals) -> Iterator[asyncio.Event]:
    """An event that is set when one of the signals comes; for commands that end by that."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for each in signals:
        loop.add_signal_handler(each, stop.set)
    try:
        yield stop
    finally:
        for each in signals:
            loop.remove_signal_handler(each)
