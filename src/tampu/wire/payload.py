"""A user's value as MessagePack, within a size and a nesting limit.

Byte for byte what `msgpack.packb(value, use_bin_type=True)` writes for None, bool, int, float,
str, bytes, list, tuple and dict, and for subclasses of these. Tuples arrive as lists.

Further types are written as msgspec does: an aware datetime as the MessagePack timestamp, which
arrives as an equal datetime in UTC; sets as arrays; dataclasses and structs as maps; enums as
their value; UUID, Decimal, date, time, timedelta and naive datetimes as text; models of pydantic
as their `model_dump(mode="json", round_trip=True)`. Everything else is refused. Only the aware
datetime comes back as what it was. Types are not checked one by one: walking over a small value
took five times as long as encoding it.

An extension type of another writer arrives as `msgspec.msgpack.Ext`.

A `msgspec.Raw` is written as the bytes it holds, whatever they are: for who has a codec of his own.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import MsgspecError, Raw
from msgspec.msgpack import Decoder, Encoder

from tampu.errors import DecodeError, EncodeError
from tampu.wire.msgpack import MAX_DEPTH, may_nest_too_deep

_CONTAINERS: Final = frozenset({list, dict})
_TOO_DEEP: Final = f"it nests deeper than {MAX_DEPTH} levels"


def encode_payload(value: object, *, max_bytes: int, what: str = "payload") -> bytes:
    """The MessagePack of a value; `EncodeError` if it has none or takes too many bytes."""
    try:
        data = _encode(value)
    except OverflowError:
        raise EncodeError(what, "an int in it is below -2**63 or above 2**64 - 1") from None
    except UnicodeEncodeError:
        raise EncodeError(what, "a text in it holds a lone surrogate") from None
    except RecursionError:
        raise EncodeError(what, _TOO_DEEP) from None
    except (MsgspecError, TypeError, ValueError) as error:
        raise EncodeError(what, _problem_of(error)) from None
    _check_encoded(value, data, max_bytes=max_bytes, what=what)
    return data


def encode_payloads(values: Sequence[object], *, max_bytes: int) -> list[bytes]:
    """Each value as `encode_payload` has it, in a third of the time if they are small."""
    try:
        encoded = list(map(_encode, values))
    except (MsgspecError, TypeError, ValueError, OverflowError, RecursionError):
        return [encode_payload(value, max_bytes=max_bytes) for value in values]
    harmless = min(max_bytes, MAX_DEPTH)  # so few bytes nest no deeper
    for value, data in zip(values, encoded, strict=True):
        if len(data) > harmless:
            _check_encoded(value, data, max_bytes=max_bytes, what="payload")
    return encoded


def _check_encoded(value: object, data: bytes, *, max_bytes: int, what: str) -> None:
    if len(data) > max_bytes:
        raise EncodeError(what, f"it takes {len(data)} bytes, and {max_bytes} are allowed")
    if not may_nest_too_deep(data) or isinstance(value, Raw):
        return
    try:
        decode_payload(data, what=what)
    except DecodeError as error:  # also what cannot be read back, such as a map with maps as keys
        raise EncodeError(what, error.problem) from None


def decode_payload(data: bytes, *, what: str = "payload") -> object:
    """The value in MessagePack bytes that hold exactly one; else `DecodeError`."""
    try:
        value = _decode(data)
    except RecursionError:
        raise DecodeError(what, _TOO_DEEP) from None
    except (MsgspecError, ValueError, OverflowError, TypeError):
        raise DecodeError(what, "it is not one MessagePack value") from None
    if may_nest_too_deep(data) and _nests_too_deep(value):
        raise DecodeError(what, _TOO_DEEP)
    return value


def _nests_too_deep(value: object) -> bool:
    """Level by level over what was decoded: a third of the time of a walk over the bytes.

    What nests far deeper never gets here: the decoder gives up on it.
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
    """Whether it is a model of pydantic 2, which need not be installed."""
    return isinstance(kind, type) and hasattr(kind, "__pydantic_validator__")


class ForeignTypeError(TypeError):
    """A type that neither MessagePack nor msgspec knows."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        super().__init__(f"MessagePack has no type for {kind.__module__}.{kind.__qualname__}")


# The base types' own conversions: a subclass may have another idea of str(value).
_PLAIN: Final[tuple[tuple[type, Callable[[Any], object]], ...]] = (
    (str, str.__str__),
    (bytes, bytes.__bytes__),
    (int, int.__int__),
    (float, float.__float__),
)


def _as_plain(value: Any) -> object:  # noqa: ANN401 - whatever msgspec does not know
    """A subclass of a plain type as that type, which is how python-msgpack writes it."""
    if is_model(type(value)):
        return value.model_dump(mode="json", round_trip=True)
    for plain, convert in _PLAIN:
        if isinstance(value, plain):
            return convert(value)
    raise ForeignTypeError(type(value))


def _problem_of(error: Exception) -> str:
    """Foreign texts may quote the value, so only our own is passed on."""
    return str(error) if isinstance(error, ForeignTypeError) else "MessagePack cannot hold it"


_encode: Final = Encoder(enc_hook=_as_plain).encode
_decode: Final = Decoder().decode

decode_small: Final = _decode
"""The decoder itself, for payloads of at most `MAX_DEPTH` bytes, which cannot nest too deep."""
