"""What tests of queues share: reading what is on the server."""

from typing import Any

import redis
from msgspec import Struct

from tampu.wire.entry import decode_entry
from tampu.wire.envelope import Envelope, decode_envelope
from tampu.wire.extras import Extras, decode_extras
from tampu.wire.keys import QueueKeys
from tampu.wire.payload import decode_payload

QUEUE = "emails"
KEYS = QueueKeys(QUEUE)


class Waiting(Struct, frozen=True):
    """A job as it waits in the stream."""

    envelope: Envelope
    name: str
    extras: Extras

    @property
    def data(self) -> object:
        return decode_payload(self.envelope.payload)


def flat_entries(admin: redis.Redis, key: bytes = KEYS.stream) -> list[list[bytes]]:
    """The fields of each entry, in turn."""
    page: Any = admin.xrange(key)
    return [[text for pair in fields.items() for text in pair] for _, fields in page]


def waiting(admin: redis.Redis, key: bytes = KEYS.stream) -> list[Waiting]:
    """The jobs in the stream, oldest first."""
    found = []
    for flat in flat_entries(admin, key):
        entry = decode_entry(flat)
        assert entry.envelope is not None
        extras = decode_extras(entry.extras)
        found.append(Waiting(decode_envelope(entry.envelope), entry.name, extras))
    return found


def waiting_ids(admin: redis.Redis) -> list[str]:
    """The ids of the jobs in the stream, oldest first."""
    return [job.envelope.id for job in waiting(admin)]


def delayed(admin: redis.Redis) -> list[tuple[bytes, float]]:
    """The delayed members and when they are due."""
    found: Any = admin.zrange(KEYS.delayed, 0, -1, withscores=True)
    return list(found)


def script_calls(admin: redis.Redis) -> int:
    """How many script calls the server has carried out since its statistics were reset."""
    stats: Any = admin.info("commandstats")
    return int(stats.get("cmdstat_evalsha", {}).get("calls", 0))
