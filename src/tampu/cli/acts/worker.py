"""What `tampu worker` does."""

import logging
import os
import sys
import threading
from functools import partial
from time import monotonic

from tampu.cli.acts.blame import raised
from tampu.cli.acts.target import app_at
from tampu.cli.ending import ExitCode, stop_printing
from tampu.cli.screen import Screen
from tampu.cli.shared import Running, Shared
from tampu.cli.working.banner import banner, start_shape
from tampu.cli.working.health import check_file
from tampu.cli.working.log import set_up_log
from tampu.cli.working.orders import Crew, Orders, Probes, Recycling
from tampu.cli.working.parent import Parent
from tampu.cli.working.shift import Shift
from tampu.cli.working.supervisor import Supervisor
from tampu.cli.working.words import Started
from tampu.errors import TampuError

__all__ = ["Crew", "Orders", "Probes", "Recycling", "worker"]

logger = logging.getLogger("tampu.worker")

_THREADS_S = 0.5


def worker(shared: Shared, orders: Orders) -> Running:
    """Work in this process, or look after others that do.

    The app is imported before there is an event loop: its module may run one of its own.
    """
    set_up_log(orders.log_level)
    check_file(orders.probes)
    parent = Parent.found()
    if parent is None and orders.crew.is_supervised:
        return _supervise(shared, orders)
    show = partial(_show, shared, orders) if parent is None else _silently
    return _work(Shift(app_at(orders.target, shared), orders, parent, show))


async def _supervise(shared: Shared, orders: Orders) -> None:
    await Supervisor(orders, partial(_show, shared, orders)).run()


async def _work(shift: Shift) -> None:
    try:
        await shift.work()
    except TampuError:
        raise
    except Exception as error:  # noqa: BLE001 - border: the app's lifespan and dependencies
        raise raised(error, ExitCode.NO, "the app cannot be run") from None
    _leave_threads()


def _show(shared: Shared, orders: Orders, started: Started) -> None:
    """Say that it works; where that cannot be printed it works all the same."""
    if orders.quiet:
        return
    processes = orders.crew.size if orders.crew.is_supervised else None
    shape = start_shape(started, processes)
    try:
        if shared.as_json:
            Screen(shared).line(shape, lambda each: each, str)
        else:
            Screen(shared).show(shape, lambda: banner(started, processes))
        sys.stdout.flush()
    except OSError:
        stop_printing()


def _silently(started: Started) -> None:
    del started  # the process above shows it, once for all


def _leave_threads() -> None:
    """End the process although plain functions still run in threads: their jobs went back.

    Python would wait for them, for as long as they take.
    """
    limit = monotonic() + _THREADS_S
    threads = [each for each in threading.enumerate() if each.name.startswith("tampu-handler")]
    for each in threads:
        each.join(max(0.0, limit - monotonic()))
    left = sum(each.is_alive() for each in threads)
    if left:
        logger.warning("ending with functions that still run in threads", extra={"threads": left})
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)
