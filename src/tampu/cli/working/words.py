"""What a worker process tells the one that started it: a line of JSON each."""

from enum import Enum
from typing import Final, TypeAlias

from msgspec import MsgspecError, Struct
from msgspec.json import Decoder, Encoder


class Reason(Enum):
    """Why a worker process ends."""

    TOLD = "told"
    EMPTY = "empty"  # with --burst: there is nothing left to do
    RECYCLED = "recycled"  # it ran as many jobs, or has as much memory, as it may


class Started(Struct, frozen=True, tag=True):
    """It works. The same is shown to the user, once."""

    version: str  # of tampu
    tasks: list[str]
    queues: dict[str, int]
    server: str
    dialect: str
    can: list[str]  # newer things that the server knows
    grace_s: float


class Beat(Struct, frozen=True, tag=True):
    """How it is, every second."""

    running: int
    silent_s: float


class Leaving(Struct, frozen=True, tag=True):
    """It has begun to end."""

    reason: Reason


Word: TypeAlias = Started | Beat | Leaving

_ENCODER: Final = Encoder()
_DECODER: Final[Decoder[Word]] = Decoder(Word)


def encode_word(word: Word) -> bytes:
    """One line."""
    return _ENCODER.encode(word) + b"\n"


def decode_word(line: bytes) -> Word | None:
    """What a line says; None if it says nothing that we know."""
    try:
        return _DECODER.decode(line)
    except MsgspecError:
        return None
