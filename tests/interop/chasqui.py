"""The real ChasquiMQ, in a process of its own that does what a test asks it to."""

import asyncio
import json
import subprocess
import threading
from typing import Any, Self

from tests.interop.peer.values import packed, unpacked
from tests.peers import PYTHON
from tests.servers import ROOT

ANSWER_LIMIT_S = 30.0


class Refused(Exception):
    """ChasquiMQ raised; the text is its error's."""


class Chasqui:
    """Asks and gets answers, one at a time. Data are any values that MessagePack has."""

    def __init__(self, url: str) -> None:
        self._process = subprocess.Popen(
            [PYTHON, "-m", "tests.interop.peer", url],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._turn = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.communicate()

    async def ask(self, do: str, **told: object) -> Any:  # noqa: ANN401 - what it answered
        """Have something done; raises `Refused`."""
        try:
            async with asyncio.timeout(ANSWER_LIMIT_S):
                line = await asyncio.to_thread(self._exchange, json.dumps({"do": do, **told}))
        except TimeoutError:
            self._process.kill()  # which ends the thread that waits for a line, too
            raise
        assert line, f"it ended while it was asked to {do}"
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["told"]

    def _exchange(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._turn:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
            return self._process.stdout.readline()

    async def add(self, queue: str, name: str, data: object = None, **options: object) -> str:
        """Add a job; its id."""
        job_id: str = await self.ask("add", queue=queue, name=name, data=packed(data), **options)
        return job_id

    async def repeat(self, queue: str, name: str, data: object = None, **options: object) -> str:
        """Store a repeat; its key."""
        key: str = await self.ask("repeat", queue=queue, name=name, data=packed(data), **options)
        return key

    async def calls(self, worker: str) -> list[dict[str, Any]]:
        """What a worker's handler was called for, so far."""
        found: list[dict[str, Any]] = await self.ask("calls", worker=worker)
        return [{**call, "data": unpacked(call["data"])} for call in found]
