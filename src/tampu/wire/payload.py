"""A user's value as MessagePack, within a size and a nesting limit.

Byte for byte what `msgpack.packb(value, use_bin_type=True)` writes for None, bool, int, float,
str, bytes, list, tuple and dict, and for subclasses of these. Tuples arrive as lists.

Further types are written as msgspec does: an aware datetime as the MessagePack timestamp, which
arrives as an equal datetime in UTC; sets as arrays; dataclasses and structs as maps; enums as
their value; UUID, Decimal, date, time, timedelta, naive datetimes and paths as text; models of
pydantic as their `model_dump(mode="json", round_trip=True)`. Everything else is refused. Of these
types only an aware datetime arrives as the same type. Values are not walked to check their types:
that took five times as long as encoding them.

An extension type of another writer arrives as `msgspec.msgpack.Ext`.

A `msgspec.Raw` is written as the bytes it holds, unchecked: for programs with a codec of their own.
"""

from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any, Final

from msgspec import MsgspecError, Raw
from msgspec.msgpack import Decoder, Encoder, Ext

from tampu.errors import DecodeError, EncodeError
from tampu.wire.msgpack import MAX_DEPTH, may_nest_too_deep

_CONTAINERS: Final = frozenset({list, dict})
_TOO_DEEP: Final = f"it is nested more than {MAX_DEPTH} levels deep"


def encode_payload(value: object, *, max_bytes: int, what: str = "payload") -> bytes:
    """The MessagePack of a value; `EncodeError` if it cannot be encoded or is too large."""
    try:
        data = _encode(value)
    except OverflowError:
        raise EncodeError(what, "it contains an int below -2**63 or above 2**64 - 1") from None
    except UnicodeEncodeError:
        raise EncodeError(what, "it contains text with a lone surrogate") from None
    except RecursionError:
        raise EncodeError(what, _TOO_DEEP) from None
    except (MsgspecError, TypeError, ValueError) as error:
        raise EncodeError(what, _problem_of(error)) from None
    _check_encoded(value, data, max_bytes=max_bytes, what=what)
    return data


def encode_payloads(values: Sequence[object], *, max_bytes: int) -> list[bytes]:
    """The same as `encode_payload` for each value, in a third of the time for small ones."""
    try:
        encoded = list(map(_encode, values))
    except (MsgspecError, TypeError, ValueError, OverflowError, RecursionError):
        return [encode_payload(value, max_bytes=max_bytes) for value in values]
    harmless = min(max_bytes, MAX_DEPTH)  # too short to be nested too deep
    for value, data in zip(values, encoded, strict=True):
        if len(data) > harmless:
            _check_encoded(value, data, max_bytes=max_bytes, what="payload")
    return encoded


def _check_encoded(value: object, data: bytes, *, max_bytes: int, what: str) -> None:
    if len(data) > max_bytes:
        limit = "max_payload" if what == "payload" else "the limit"
        raise EncodeError(what, f"it takes {len(data)} bytes; {limit} is {max_bytes}")
    if not may_nest_too_deep(data) or isinstance(value, Raw):
        return
    try:
        decode_payload(data, what=what)
    except (
        DecodeError
    ) as error:  # also values that cannot be read back, such as a map with maps as keys
        raise EncodeError(what, error.problem) from None


def decode_payload(data: bytes, *, what: str = "payload") -> object:
    """The one value in MessagePack bytes, or `DecodeError`."""
    return _decode_with(_decode, data, what)


def decode_data(data: bytes) -> object:
    """As `decode_payload`, but raises `OwnPayloadFound` for one of our own."""
    return _decode_with(decode_small, data, "payload")


def _decode_with(decode: Callable[[bytes], object], data: bytes, what: str) -> object:
    try:
        value = decode(data)
    except RecursionError:
        raise DecodeError(what, _TOO_DEEP) from None
    except (MsgspecError, ValueError, OverflowError, TypeError):
        raise DecodeError(what, "it is not exactly one MessagePack value") from None
    if may_nest_too_deep(data) and _nests_too_deep(value):
        raise DecodeError(what, _TOO_DEEP)
    return value


def _nests_too_deep(value: object) -> bool:
    """Check the decoded value level by level, in a third of the time of a walk over the bytes.

    The decoder itself refuses values that are nested far deeper.
    """
    level: list[Any] = [value] if type(value) in _CONTAINERS else []
    for _ in range(MAX_DEPTH):
        level = [
            child
            for container in level
            for child in (container.values() if type(container) is dict else container)
            if type(child) in _CONTAINERS
        ]
    return bool(level)


def is_model(kind: object) -> bool:
    """Whether this is a pydantic 2 model class. pydantic need not be installed."""
    return isinstance(kind, type) and hasattr(kind, "__pydantic_validator__")


class ForeignTypeError(TypeError):
    """A type that neither MessagePack nor msgspec supports."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        super().__init__(f"MessagePack has no type for {kind.__module__}.{kind.__qualname__}")


# Conversions of the base types: a subclass may override `__str__` and others.
_PLAIN: Final[tuple[tuple[type, Callable[[Any], object]], ...]] = (
    (str, str.__str__),
    (bytes, bytes.__bytes__),
    (int, int.__int__),
    (float, float.__float__),
)


def as_plain(value: Any) -> object:  # noqa: ANN401 - any type that msgspec does not support
    """A subclass of a plain type as that type, as python-msgpack writes it."""
    if is_model(type(value)):
        return value.model_dump(mode="json", round_trip=True)
    if isinstance(value, PurePath):
        return str(value)
    for plain, convert in _PLAIN:
        if isinstance(value, plain):
            return convert(value)
    raise ForeignTypeError(type(value))


def _problem_of(error: Exception) -> str:
    """Other errors may quote the value, so only our own text is passed on."""
    return str(error) if isinstance(error, ForeignTypeError) else "MessagePack cannot represent it"


_encode: Final = Encoder(enc_hook=as_plain).encode
_decode: Final = Decoder().decode
OWN_PAYLOAD: Final = 84
"""The type of the extension that is the whole payload of some jobs of flows and chains."""


class OwnPayloadFound(Exception):
    """A payload that may be one of our own: not yet the arguments of a job."""


def _refuse_own(code: int, data: memoryview) -> Ext:
    if code == OWN_PAYLOAD:
        raise OwnPayloadFound
    return Ext(code, bytes(data))


decode_small: Final = Decoder(ext_hook=_refuse_own).decode
"""For payloads of at most `MAX_DEPTH` bytes, which cannot be nested too deep.

Raises `OwnPayloadFound` for one of our own.
"""


# Where the type is in an extension, by its first byte.
_TYPE_AT: Final = dict.fromkeys(range(0xD4, 0xD9), 1) | {0xC7: 2, 0xC8: 3, 0xC9: 5}


def is_own_payload(data: bytes) -> bool:
    """Whether a payload is one of our own."""
    at = _TYPE_AT.get(data[0]) if data else None
    return at is not None and data[at : at + 1] == bytes((OWN_PAYLOAD,))
