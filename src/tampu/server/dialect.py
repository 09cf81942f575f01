"""What a server can do, found out once when we connect."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from redis.exceptions import NoPermissionError

from tampu.errors import ServerTooOld
from tampu.server.protocol import pack
from tampu.server.redis_py import Connection
from tampu.util.options import Word

NEEDED = "Redis 6.2 or newer, or any Valkey"

# XAUTOCLAIM came with Redis 6.2, the oldest version that tampu supports.
_REQUIRED_COMMAND = "XAUTOCLAIM"
_DETECTED = (_REQUIRED_COMMAND, "XACKDEL", "WAITAOF")
# All other commands that tampu sends, in its scripts too. Hosted servers rename or disable some.
USED = (
    *("CLIENT", "COMMAND", "INFO", "SCAN", "TIME", "WAIT", "EVAL", "EVALSHA", "SCRIPT"),
    *("BITFIELD", "DEL", "EXISTS", "EXPIRE", "PERSIST", "PEXPIRE", "PTTL", "UNLINK"),
    *("GET", "MGET", "SET"),
    *("BLPOP", "LINDEX", "LLEN", "LPOP", "LPOS", "LPUSH", "LRANGE", "LREM", "LTRIM", "RPUSH"),
    *(
        "HDEL",
        "HEXISTS",
        "HGET",
        "HGETALL",
        "HINCRBY",
        "HKEYS",
        "HLEN",
        "HMGET",
        "HRANDFIELD",
        "HSCAN",
    ),
    *("HSET", "HSETNX"),
    *("XACK", "XADD", "XCLAIM", "XDEL", "XGROUP", "XINFO", "XLEN", "XPENDING", "XRANGE", "XREAD"),
    *("XREADGROUP", "XREVRANGE", "XTRIM"),
    *("ZADD", "ZCARD", "ZCOUNT", "ZMSCORE", "ZPOPMIN", "ZRANGE", "ZRANGEBYSCORE", "ZREM"),
    *("ZREMRANGEBYRANK", "ZREMRANGEBYSCORE", "ZREVRANGE", "ZSCAN", "ZSCORE"),
)
_FIELD = re.compile(rb"^([a-z_]+):(.*?)\r?$", re.MULTILINE)
_PRE_RELEASE = re.compile(r"[^0-9.].*")


class Product(Word):
    """The make of a server."""

    REDIS = "Redis"
    VALKEY = "Valkey"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """A server's product, its version and the newer commands that it knows."""

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


# What every supported server can do. Assumed for users who may not ask.
OLDEST = Dialect()


async def detect(connection: Connection, server: str) -> Dialect:
    """Ask a connected server what it is; raises `ServerTooOld` if tampu cannot use it."""
    try:
        info = await _call(connection, "INFO", "server")
        commands = await _call(connection, "COMMAND", "INFO", *_DETECTED)
    except NoPermissionError:
        return OLDEST
    if not isinstance(info, bytes) or not isinstance(commands, list):
        raise ServerTooOld(server, "unknown", NEEDED)
    return parse_dialect(info, commands, server)


def parse_dialect(info: bytes, commands: Sequence[object], server: str) -> Dialect:
    """The dialect that the replies to INFO server and COMMAND INFO describe."""
    fields = {name.decode(): value.decode() for name, value in _FIELD.findall(info)}
    valkey_version = fields.get("valkey_version")
    version = valkey_version or fields.get("redis_version", "0")
    known = {name for name, entry in zip(_DETECTED, commands, strict=True) if entry}
    if _REQUIRED_COMMAND not in known:
        raise ServerTooOld(server, version, NEEDED)
    return Dialect(
        product=Product.VALKEY if valkey_version else Product.REDIS,
        version=tuple(int(part) for part in _PRE_RELEASE.sub("", version).split(".") if part),
        ack_and_delete="XACKDEL" in known,
        wait_for_fsync="WAITAOF" in known,
    )


async def _call(connection: Connection, *command: str) -> object:
    await connection.send_packed_command(pack(*command), check_health=False)
    return await connection.read_response(disable_decoding=True)
