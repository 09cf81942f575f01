"""Uniqueness: at most one job with the same key at a time."""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Literal, TypeAlias

from msgspec.msgpack import Encoder

from tampu.errors import OptionError
from tampu.util.clock import Duration, to_positive_ms
from tampu.util.options import check_choice
from tampu.wire.keys import UniqueUntil
from tampu.wire.payload import decode_payload

OnConflict: TypeAlias = Literal["return", "raise", "replace"]
_ON_CONFLICT: Final = ("return", "raise", "replace")
_UNTIL: Final = {"started": UniqueUntil.STARTED, "done": UniqueUntil.DONE}
_MAX_KEY_BYTES: Final = 256
# A key is freed when its job starts or ends. Should a peer's worker end the job, the key is freed
# by the next job that wants it; this is for keys that nobody wants again.
_LONGEST_MS: Final = 30 * 86_400_000
_encode: Final = Encoder(order="deterministic").encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Unique:
    """At most one job with the same name and key at a time on a queue.

    Without a `key`, jobs with the same data have the same key. The key is taken `until` the job has
    "started" or is "done" (or buried, or cancelled), or for a time from when it is added. If the
    key is taken, `on_conflict` chooses: "return" the job that has it, "raise" `JobExists`, or
    "replace" that job, as long as it has not started.
    """

    key: str | None = None
    until: Literal["started", "done"] | Duration = "done"
    on_conflict: OnConflict = "return"

    def __post_init__(self) -> None:
        key: object = self.key
        problem = f"expected 1 to {_MAX_KEY_BYTES} bytes of text"
        if key is not None and not isinstance(key, str):
            raise OptionError("key", key, problem)
        if key is not None and not 1 <= len(key.encode("utf-8", "replace")) <= _MAX_KEY_BYTES:
            raise OptionError("key", key[:80], problem)
        check_choice("on_conflict", self.on_conflict, _ON_CONFLICT)
        if self.until_kind is UniqueUntil.TIME:
            to_positive_ms("until", self.until)

    @property
    def until_kind(self) -> UniqueUntil:
        """What frees the key."""
        given: object = self.until
        return _UNTIL.get(given, UniqueUntil.TIME) if isinstance(given, str) else UniqueUntil.TIME

    def held_ms(self, delay_ms: int) -> int:
        """How long the key is taken at most, for a job with this delay."""
        if self.until_kind is UniqueUntil.TIME:
            return to_positive_ms("until", self.until)
        return delay_ms + _LONGEST_MS

    def key_for(self, name: str, payload: bytes) -> str:
        """The key of a job: jobs of different names never share one."""
        if self.key is not None:
            return f"{name}:{self.key}"
        data = _encode(decode_payload(payload))  # the order of a dict's keys does not matter
        return f"{name}:{blake2b(data, digest_size=16).hexdigest()}"
