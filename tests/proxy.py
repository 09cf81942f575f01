"""A TCP proxy on the loopback address that does to a connection what networks do."""

import asyncio
import ssl
from contextlib import suppress
from random import Random
from typing import Self

_PIECE = 65_536


class Proxy:
    """Passes bytes between clients and one server; its attributes are the faults, live."""

    def __init__(
        self, server_port: int, *, tls: ssl.SSLContext | None = None, seed: int = 0
    ) -> None:
        self.latency_s = 0.0  # each piece of a reply is held back for up to this long
        self.hold_replies = False  # replies are swallowed: a black hole
        self.hold_requests = False
        self.lost_reply: bytes | None = None  # a reply that is swallowed whenever it comes
        self.deafening: bytes | None = None  # from this reply on, a connection brings nothing more
        self.port = 0
        self.accepted = 0
        self.swallowed = 0  # bytes that went into a hole
        self._server_port = server_port
        self._tls = tls
        self._rng = Random(seed)  # noqa: S311 - latency, not secrets
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[object]] = set()
        self._clients: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(
            self._serve, "127.0.0.1", 0, ssl=self._tls, limit=_PIECE
        )
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._listener.close()
        await asyncio.sleep(0)  # who was accepted last is served from now on
        while self._serving:
            self.cut()
            await asyncio.wait(self._serving, timeout=0.1)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    async def inject(self, piece: bytes) -> None:
        """Send every client something that the server never said."""
        for writer in self._clients:
            writer.write(piece)
            await writer.drain()

    def lead_to(self, server_port: int) -> None:
        """Lead to another server from now on."""
        self._server_port = server_port
        self.cut()

    def cut(self) -> None:
        """Reset every connection that goes through here."""
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self._writers.add(writer)
        try:
            with suppress(OSError):
                await self._join(reader, writer)
        finally:
            self._writers.discard(writer)
            writer.transport.abort()
            self._serving.discard(task)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass bytes between a client and the server until one of them goes away."""
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        self._writers.add(to_writer)
        self._clients.add(writer)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(reader, to_writer, replies=False))
                group.create_task(self._pass(to_reader, writer, replies=True))
        except* OSError:
            pass
        finally:
            self._writers.discard(to_writer)
            self._clients.discard(writer)
            to_writer.transport.abort()

    def _swallows(self, reply: bytes) -> bool:
        lost = self.lost_reply is not None and reply.endswith(self.lost_reply)
        return self.hold_replies or lost

    async def _pass(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, replies: bool
    ) -> None:
        deaf = False
        while piece := await source.read(_PIECE):
            if replies and self.latency_s:
                await asyncio.sleep(self._rng.uniform(0, self.latency_s))
            if replies and self.deafening is not None:
                deaf = deaf or piece.endswith(self.deafening)
            if deaf or (self._swallows(piece) if replies else self.hold_requests):
                self.swallowed += len(piece)
                continue
            target.write(piece)
            await target.drain()
        raise ConnectionError("one side went away")
