"""Type hints of arguments and results: what msgspec can convert, and what pydantic does for it."""

import inspect
import re
import sys
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import cache
from pathlib import PurePath
from typing import Annotated, Any, Final, Self, get_args, get_origin, get_type_hints

from msgspec import MsgspecError, Struct, convert
from msgspec.inspect import (
    ByteArrayType,
    BytesType,
    CustomType,
    Field,
    MemoryViewType,
    Type,
    type_info,
)
from msgspec.msgpack import Decoder
from msgspec.structs import astuple

from tampu.wire.payload import is_model

# MessagePack has bytes: text in their place is a mistake, not Base64.
_BYTES_TYPES: Final = (bytes, bytearray, memoryview)
_SPECIAL_TYPES: Final = (BytesType, ByteArrayType, MemoryViewType, CustomType)
_ARRIVING: Final = (type(None), bool, int, float, str, bytes, list, dict)
_PATH: Final = re.compile(r" - at `\$([\w.\[\]]*)`\Z")
_UNION: Final = (
    "not supported as the type of an argument; types of a union must differ in MessagePack"
)

_NOT_SENT: Final = "cannot be sent; use a dataclass or a pydantic model, or pass an id"

_BOUNDS: Final = ("greater_than", "less_than", "multiple_of", "too_short", "too_long", "pattern")


class Unsupported(TypeError):
    """A hint that no argument can be converted to; the message says why."""


class _Rejected(ValueError):
    """A value that pydantic rejects; the message says where, without values."""


class _AdaptedMeta(type):
    """What pydantic returns has no common type, so every value is an instance."""

    def __instancecheck__(cls, value: object) -> bool:
        return True


class _Adapted(metaclass=_AdaptedMeta):
    """A type for msgspec that stands for a hint that pydantic converts to."""

    hint: Any
    adapter: Any


class ByReference:
    """The base of types whose values come as a reference to what a hint in brackets describes."""

    @classmethod
    @abstractmethod
    def from_reference(cls, reference: object, hint: Any) -> Self:  # noqa: ANN401 - an annotation
        """The value; `MsgspecError` if it is no such reference."""


def prepare_hint(hint: Any) -> Any:  # noqa: ANN401 - an annotation
    """The hint, or what stands for it if pydantic has to convert; `Unsupported` if nothing can."""
    parts = list(_parts_of(hint))
    if any(map(_is_constraint, parts)):
        return _adapt(hint)
    try:
        Decoder(hint, dec_hook=_decode_custom)
    except (TypeError, NameError):
        if not any(map(is_model, parts)):
            raise Unsupported(_UNION) from None
        return _adapt(hint)
    for kind in filter(_is_never_met, _custom_types(hint)):
        raise Unsupported(f"{kind.__qualname__} {_NOT_SENT}")
    return hint


def describe_hint(hint: Any) -> str:  # noqa: ANN401 - an annotation
    """An annotation as text."""
    if isinstance(hint, type) and issubclass(hint, _Adapted):
        return describe_hint(hint.hint)
    if get_origin(hint) is Annotated and any(map(_is_constraint, get_args(hint)[1:])):
        return describe_hint(get_args(hint)[0])  # pydantic's own words are long
    if isinstance(hint, type) and not hasattr(hint, "__args__"):
        return hint.__qualname__
    return str(hint).replace("typing.", "")


def convert_to(value: object, hint: Any) -> Any:  # noqa: ANN401 - of that type
    """The value, converted; `MsgspecError` if it does not fit."""
    return convert(value, hint, builtin_types=_BYTES_TYPES, dec_hook=_decode_custom)


def converts_simply(kind: type[Struct]) -> bool:
    """Whether msgspec can convert it without our keywords: neither bytes nor custom types.

    That takes half the time, because the keywords cost as much as a small conversion.
    """
    return not any(isinstance(each, _SPECIAL_TYPES) for each in _type_infos(kind))


def invalid_part(error: MsgspecError) -> str:
    """What is wrong in a value: names of fields, indexes and rules, no values."""
    found = _PATH.search(str(error))
    path = found[1] if found else ""
    rejected = error.__cause__
    if isinstance(rejected, _Rejected) and rejected.args[1]:
        path = f"{path}.{rejected.args[1]}"
    texts = [f"invalid at {path.strip('.')}"] if path.strip(".") else []
    if isinstance(rejected, _Rejected) and rejected.args[0]:
        texts.append(rejected.args[0])
    return "; ".join(texts)


# --- looking into hints -------------------------------------------------------------------------


def _parts_of(hint: Any, seen: set[int] | None = None) -> Iterator[Any]:  # noqa: ANN401 - any hint
    """A hint, what it consists of, and the marks inside `Annotated`."""
    seen = set() if seen is None else seen
    if id(hint) in seen:
        return
    seen.add(id(hint))
    yield hint
    parts: tuple[Any, ...] = get_args(hint)
    if is_dataclass(hint) or (isinstance(hint, type) and issubclass(hint, dict | tuple)):
        parts = (*parts, *_field_hints(hint))
    for each in parts:
        yield from _parts_of(each, seen)


def _field_hints(kind: Any) -> Iterator[Any]:  # noqa: ANN401 - a dataclass, TypedDict or NamedTuple
    try:
        yield from get_type_hints(kind, include_extras=True).values()
    except (NameError, TypeError):  # msgspec or pydantic will say so
        return


def _is_constraint(part: object) -> bool:
    """Whether it is a mark of pydantic, or of the package that pydantic takes its rules from."""
    package = type(part).__module__.partition(".")[0]
    return package in {"pydantic", "annotated_types"} and not isinstance(part, type)


def _custom_types(hint: Any) -> Iterator[type]:  # noqa: ANN401 - an annotation
    for each in _type_infos(hint):
        if isinstance(each, CustomType):
            yield get_origin(each.cls) or each.cls


def _is_never_met(kind: type) -> bool:
    """Whether no value that MessagePack can hold is an instance of this class."""
    if is_model(kind) or issubclass(kind, PurePath | ByReference):
        return False
    try:
        return not any(issubclass(each, kind) for each in _ARRIVING)
    except TypeError:  # a protocol that cannot be checked
        return True


def _type_infos(hint: Any) -> Iterator[object]:  # noqa: ANN401 - an annotation
    """What msgspec knows about a hint and about all its parts."""
    todo: list[object] = [type_info(hint)]
    seen: set[int] = set()
    while todo:
        each = todo.pop()
        if id(each) in seen or not isinstance(each, Type | Field | tuple):
            continue
        seen.add(id(each))
        yield each
        todo.extend(each if isinstance(each, tuple) else astuple(each))


# --- pydantic and other types that msgspec does not know ----------------------------------------


def _adapt(hint: Any) -> type[_Adapted]:  # noqa: ANN401 - an annotation
    """A type that converts as pydantic does. Whoever writes such a hint has imported pydantic."""
    pydantic: Any = sys.modules.get("pydantic")
    if pydantic is None:
        raise Unsupported("rules of annotated_types need pydantic; use msgspec.Meta instead")
    try:
        adapter = pydantic.TypeAdapter(hint)
    except pydantic.errors.PydanticUserError as error:
        problem = str(error).partition(". ")[0].partition("\n")[0]
        raise Unsupported(f"pydantic does not support it: {problem}") from None

    class Adapted(_Adapted):
        pass

    Adapted.hint, Adapted.adapter = hint, adapter
    return Adapted


def _decode_custom(kind: Any, value: object) -> object:  # noqa: ANN401 - unknown to msgspec
    hints, kind = get_args(kind), get_origin(kind) or kind
    if issubclass(kind, ByReference):
        return kind.from_reference(value, hints[0] if hints else Any)
    if is_model(kind):
        return _validate(kind.model_validate, value, kind)
    if issubclass(kind, _Adapted):
        return _validate(kind.adapter.validate_python, value, None)
    if issubclass(kind, PurePath) and isinstance(value, str):
        return kind(value)
    if isinstance(value, kind):  # for `object` every value will do
        return value
    raise TypeError


def _validate(validate: Any, value: object, model: Any) -> object:  # noqa: ANN401 - pydantic's
    try:
        return validate(value, **_validate_options(validate.__func__))
    except ValueError as error:
        rule, field = _rejection(error, model)
        raise _Rejected(rule, field) from None


@cache
def _validate_options(validate: Any) -> dict[str, bool]:  # noqa: ANN401 - a method of pydantic
    """Models are sent by field name. Before pydantic 2.11, only aliases are accepted."""
    known = inspect.signature(validate).parameters
    return {"by_alias": True, "by_name": True} if "by_name" in known else {}


def _rejection(error: ValueError, model: Any) -> tuple[str, str]:  # noqa: ANN401 - a model or None
    """The rule that is broken, or the field of a model that is wrong."""
    errors = getattr(error, "errors", None)
    if not callable(errors):
        return "", ""
    first = errors(include_input=False, include_url=False, include_context=False)[0]
    if model is None:
        kind = str(first["type"])
        # The messages of other rules may contain the value.
        is_bound = any(bound in kind for bound in _BOUNDS)
        text = str(first["msg"])
        return text[:1].lower() + text[1:] if is_bound else f"pydantic refuses it: {kind}", ""
    # Other places may be keys of the user's data.
    fields, where = model.model_fields, first["loc"]
    known = {*fields, *(each.alias for each in fields.values())} - {"root"}
    return "", where[0] if where and where[0] in known else ""
