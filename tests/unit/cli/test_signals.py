"""Requests to stop."""

import asyncio
import os
import signal

from tampu.cli.signals import ExitReason, StopRequest, wait_for_any


async def test_the_first_signal_requests_to_stop_and_the_second_forces_it() -> None:
    with StopRequest().listen() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(stop.requested.wait(), 10)
        assert (stop.reason, stop.forced.is_set()) == (ExitReason.TOLD, False)
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.wait_for(stop.forced.wait(), 10)


def test_the_first_reason_counts() -> None:
    stop = StopRequest()
    stop.stop(ExitReason.RECYCLED)
    stop.stop()
    assert (stop.reason, stop.forced.is_set()) == (ExitReason.RECYCLED, False)


async def test_waiting_ends_with_the_first_event_or_when_the_time_is_up() -> None:
    never, soon = asyncio.Event(), asyncio.Event()
    asyncio.get_running_loop().call_soon(soon.set)
    await asyncio.wait_for(wait_for_any(never, soon), 10)
    await asyncio.wait_for(wait_for_any(never, timeout_s=0.01), 10)
