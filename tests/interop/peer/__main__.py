"""ChasquiMQ behind a door: requests come as lines of JSON on stdin, each is answered by a line.

A request names what to `do` and has its arguments beside it. An answer has `told`, or `error`
with the type and text of what was raised.
"""

import asyncio
import json
import os
import sys
from typing import Any

from tests.interop.peer.program import Program


async def _answer(program: Program, request: dict[str, Any]) -> dict[str, Any]:
    do = request.pop("do")
    try:
        return {"told": await getattr(program, do)(**request)}
    except Exception as error:  # noqa: BLE001 - border: whatever it raises is the answer
        return {"error": f"{type(error).__name__}: {error}"}


async def _main(url: str) -> None:
    program = Program(url)
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await _answer(program, json.loads(line))), flush=True)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
    os._exit(0)  # an engine's threads may outlive the loop and break the interpreter's own end
