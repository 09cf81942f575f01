"""`tampu dashboard` in a process of its own."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from tampu.queue import Queue
from tests.contract.cli import COMMAND, environment, tampu
from tests.servers import RunningServer


@asynccontextmanager
async def serve(url: str, *options: str) -> AsyncIterator[str]:
    """A running dashboard; yields its address. It must end well on SIGINT."""
    command = [*COMMAND, "dashboard", "--port", "0", "--json", *options]
    process = await asyncio.create_subprocess_exec(
        *command, env=environment(url), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            line = await process.stdout.readline()
        yield json.loads(line)["url"]
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(30):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_it_serves_pages_and_ends_while_one_is_open(running: RunningServer) -> None:
    async with Queue("emails", running.url) as queue:
        await queue.add("send")
    async with serve(running.url) as address, httpx.AsyncClient() as client:
        assert address.startswith("http://127.0.0.1:")
        page = await client.get(address)
        assert "emails" in page.text
        assert "server" not in page.headers
        assert (await client.get(f"{address}static/app.css")).status_code == 200
        streaming = client.stream("GET", f"{address}live?of=overview", timeout=30)
        stream = await streaming.__aenter__()
        async for text in stream.aiter_text():
            if "emails" in text:
                break
    await stream.aclose()


async def test_it_asks_for_a_token(running: RunningServer) -> None:
    async with serve(running.url, "--token", "s3cret") as address:
        async with httpx.AsyncClient() as client:
            assert (await client.get(address)).status_code == 401
            bearer = {"authorization": "Bearer s3cret"}
            assert (await client.get(address, headers=bearer)).status_code == 200


async def test_it_refuses_other_addresses_without_credentials() -> None:
    refused = await tampu("dashboard", "--host", "0.0.0.0")  # noqa: S104 - refused
    assert refused.code == 2
    assert "needs --user and --password, or --token" in refused.err
    assert refused.out == ""
