"""A firer in a process of its own, without a worker: what it fires stays in the stream.

Run as a module it is that process; `FirerProcess` starts one and holds it.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Self
from uuid import uuid4

from tampu.metrics.facts import SafeSink
from tampu.schedules.firing import FiringService
from tampu.server.connect import connect
from tampu.server.lane import Lane
from tampu.server.listening import Wakeups
from tampu.services.leader import LeaderContext
from tampu.services.reaper import Fleet
from tampu.wire.holders import HolderKind, new_holder
from tampu.wire.keys import QueueKeys
from tests.servers import ROOT

START_LIMIT_S = 30.0


class FirerProcess:
    """A process that the test started; `holder` is what it writes into the lock."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.holder = b""

    @classmethod
    async def start(cls, url: str, queue: str, env: Mapping[str, str]) -> Self:
        """Start one, with more in its environment, and return when it works."""
        command = [sys.executable, "-m", __name__, url, queue]
        process = subprocess.Popen(  # noqa: ASYNC220 - returns at once
            command, cwd=ROOT, env=os.environ | env, stdout=subprocess.PIPE, text=True
        )
        started = cls(process)
        assert process.stdout is not None
        async with asyncio.timeout(START_LIMIT_S):
            line = await asyncio.to_thread(process.stdout.readline)
        started.holder = line.strip().encode()
        assert started.holder, "the process did not start"
        return started

    def kill(self) -> None:
        """End it without a word."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def freeze(self) -> None:
        """Have it do nothing, not even notice."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Have it go on as if nothing had been."""
        self.process.send_signal(signal.SIGCONT)


async def _main(url: str, queue: str) -> None:
    keys = QueueKeys(queue)
    holder = new_holder(HolderKind.SCHEDULER, uuid4())
    async with await connect(url) as server, await Lane.open(server, keys.stream) as lane:
        firer = FiringService(
            LeaderContext(
                lane=lane,
                keys=keys,
                holder=holder,
                events_max_len=0,
                sink=SafeSink(None),
                wakeups=Wakeups(server),
                fleet=Fleet(),
            )
        )
        firer.start()
        print(holder.text, flush=True)  # noqa: T201 - for who started it
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
