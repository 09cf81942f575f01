"""What a server can do, asked once when we meet it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import NoPermissionError

from tampu.errors import ServerTooOld
from tampu.server.protocol import pack

NEEDED = "Redis 6.2 or newer, or any Valkey"

# XAUTOCLAIM came with Redis 6.2, the oldest level tampu is built for.
_FLOOR_COMMAND = "XAUTOCLAIM"
_ASKED = (_FLOOR_COMMAND, "XACKDEL", "WAITAOF")
# What tampu sends besides, here and in its scripts; hosted servers rename or disable some.
USED = (
    *("BLPOP", "CLIENT", "COMMAND", "DEL", "EVAL", "EVALSHA", "EXISTS", "EXPIRE", "GET", "HDEL"),
    *("HEXISTS", "HGET", "HGETALL", "HINCRBY", "HMGET", "HSET", "INFO", "LPUSH", "LTRIM", "MGET"),
    *("PERSIST", "PEXPIRE", "PTTL", "SCAN", "SCRIPT", "SET", "TIME", "UNLINK", "WAIT", "XACK"),
    *("XADD", "XCLAIM", "XDEL", "XGROUP", "XINFO", "XLEN", "XPENDING", "XRANGE", "XREAD"),
    *(
        "XREADGROUP",
        "XREVRANGE",
        "XTRIM",
        "ZADD",
        "ZCARD",
        "ZCOUNT",
        "ZPOPMIN",
        "ZRANGE",
        "ZRANGEBYSCORE",
    ),
    *("ZREM", "ZREMRANGEBYRANK", "ZREMRANGEBYSCORE", "ZSCAN", "ZSCORE"),
)
_FIELD = re.compile(rb"^([a-z_]+):(.*?)\r?$", re.MULTILINE)
_PRE_RELEASE = re.compile(r"[^0-9.].*")


class Product(Enum):
    """Whose server it is."""

    REDIS = "Redis"
    VALKEY = "Valkey"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One server's product, version and the newer commands it knows."""

    product: Product = Product.REDIS
    version: tuple[int, ...] = (6, 2)
    ack_and_delete: bool = False  # XACKDEL
    wait_for_fsync: bool = False  # WAITAOF

    @property
    def script_flags(self) -> bool:
        """Whether a script may start with a `#!lua flags=` line."""
        return self.version >= (7, 0)

    @property
    def read_and_claim(self) -> bool:
        """Whether XREADGROUP knows CLAIM."""
        return self.product is Product.REDIS and self.version >= (8, 4)

    @property
    def add_once(self) -> bool:
        """Whether XADD knows IDMP."""
        return self.product is Product.REDIS and self.version >= (8, 6)

    def __str__(self) -> str:
        return f"{self.product.value} {'.'.join(map(str, self.version))}"


# What a user without the right to ask gets: the level that every server has.
FLOOR = Dialect()


async def ask(connection: AbstractConnection, server: str) -> Dialect:
    """Ask a connected server what it is; `ServerTooOld` if it lacks what tampu needs."""
    try:
        info = await _call(connection, "INFO", "server")
        commands = await _call(connection, "COMMAND", "INFO", *_ASKED)
    except NoPermissionError:
        return FLOOR
    if not isinstance(info, bytes) or not isinstance(commands, list):
        raise ServerTooOld(server, "unknown", NEEDED)
    return read(info, commands, server)


def read(info: bytes, commands: Sequence[object], server: str) -> Dialect:
    """The dialect that replies to INFO server and COMMAND INFO describe."""
    fields = {name.decode(): value.decode() for name, value in _FIELD.findall(info)}
    own = fields.get("valkey_version")
    text = own or fields.get("redis_version", "0")
    known = {name for name, entry in zip(_ASKED, commands, strict=True) if entry}
    if _FLOOR_COMMAND not in known:
        raise ServerTooOld(server, text, NEEDED)
    return Dialect(
        product=Product.VALKEY if own else Product.REDIS,
        version=tuple(int(part) for part in _PRE_RELEASE.sub("", text).split(".") if part),
        ack_and_delete="XACKDEL" in known,
        wait_for_fsync="WAITAOF" in known,
    )


async def _call(connection: AbstractConnection, *command: str) -> object:
    await connection.send_packed_command(pack(*command), check_health=False)
    return await connection.read_response(disable_decoding=True)
