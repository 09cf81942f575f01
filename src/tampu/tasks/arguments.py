"""Arguments: bound by the signature, carried by name, converted by their annotations."""

import inspect
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from msgspec import MsgspecError, Struct, convert, defstruct, field
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
from msgspec.structs import asdict, astuple

from tampu.errors import ArgumentError, DecodeError, EncodeError, OptionError
from tampu.outcome import Unrecoverable
from tampu.tasks.signature import Parameter, Signature
from tampu.wire.payload import decode_payload, encode_payload, is_model

# MessagePack has bytes: a text in their place is a mistake, not Base64.
_NATIVE: Final = (bytes, bytearray, memoryview)
_HELPED: Final = (BytesType, ByteArrayType, MemoryViewType, CustomType)
_ANY_SIZE: Final = 2**62
_PLACE: Final = re.compile(r" - at `\$([\w.\[\]]*)`\Z")
_AS_IT_COMES: Final = (Any, None, type(None), object, bool, int, float, str, bytes, list, dict)


class InvalidArguments(Unrecoverable):
    """A job whose data does not fit the task's signature: no attempt can help."""


class _ModelMisfit(ValueError):
    """A value that a model of pydantic refuses; its text is the field's name."""


class Arguments:
    """Those of one task. Values never reach an error's text: only names and types do."""

    def __init__(self, task: str, shape: Signature) -> None:
        self._task = task
        self._injected = shape.injected
        self._parameters = {each.name: each for each in shape.given}
        self._positions = [each.name for each in shape.given if each.by_position]
        self._required = [each.name for each in shape.given if each.required]
        self._kind = _struct(task, shape.given)
        self._convert = convert if _needs_no_help(self._kind) else _converted

    def bind(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
        """The arguments of a call by their names; `ArgumentError` if they do not fit."""
        if len(args) > len(self._positions):
            takes = (
                f"expected {len(self._positions)} arguments by position, and {len(args)} are given"
            )
            raise self._error(None, takes)
        bound: dict[str, object] = dict(zip(self._positions, args, strict=False))
        for name, value in kwargs.items():
            if name in bound:
                raise self._error(name, "is given twice")
            if name not in self._parameters:
                raise self._unknown(name)
            bound[name] = value
        for name in self._required:
            if name not in bound:
                raise self._error(name, "is missing")
        return bound

    def check(self, bound: dict[str, object]) -> None:
        """Refuse what would be refused on arrival: it is carried there and back."""
        try:
            data = decode_payload(encode_payload(bound, max_bytes=_ANY_SIZE))
            self._convert(data, self._kind)
        except (MsgspecError, EncodeError, DecodeError):
            raise self._why_not(bound) from None

    def convert(self, data: object) -> dict[str, Any]:
        """The arguments in a job's data, of the types that the function expects.

        What was not given is the function's default. `InvalidArguments` if they do not fit.
        """
        try:
            # Through a Struct: a TypedDict would be the dict at once, in three times the time.
            return asdict(self._convert({} if data is None else data, self._kind))
        except MsgspecError:
            raise InvalidArguments(str(self._why(data))) from None

    def _why_not(self, bound: dict[str, object]) -> ArgumentError:
        for name, value in bound.items():
            try:
                encode_payload(value, max_bytes=_ANY_SIZE)
            except EncodeError as error:
                return self._error(name, f"cannot travel: {error.problem}")
        try:
            return self._why(decode_payload(encode_payload(bound, max_bytes=_ANY_SIZE)))
        except (EncodeError, DecodeError) as error:
            return self._error(None, f"the arguments cannot travel: {error.problem}")

    def _why(self, data: object) -> ArgumentError:
        """What is wrong with data that were refused, found one by one."""
        if not isinstance(data, dict | None):
            return self._error(None, "the data of the job is no map of arguments")
        arguments: dict[object, object] = data or {}
        for name in arguments:
            if name not in self._parameters:
                return self._unknown(name)
        for name in self._parameters:
            if name in self._required and name not in arguments:
                return self._error(name, "is missing")
            if name in arguments and (error := self._misfit(name, arguments[name])) is not None:
                return error
        return self._error(None, "the data of the job does not fit")

    def _misfit(self, name: str, value: object) -> ArgumentError | None:
        hint = self._parameters[name].hint
        try:
            _converted(value, hint)
        except MsgspecError as error:
            place = _place_of(error)
            expected = f"must be {shown(hint)}"
            return self._error(
                name, f"{expected}, and does not fit at {place}" if place else expected
            )
        return None

    def _unknown(self, name: object) -> ArgumentError:
        if name in self._injected:
            return self._error(str(name), "is filled by the worker and cannot be given")
        known = ", ".join(self._parameters) or "none"
        if isinstance(name, str) and name.isidentifier() and len(name) <= 100:
            return self._error(name, f"is unknown; it takes {known}")
        return self._error(None, f"an argument is unknown; it takes {known}")

    def _error(self, argument: str | None, problem: str) -> ArgumentError:
        return ArgumentError(self._task, argument, problem)


class ReturnType:
    """What a task returns, of the type that it says; as it comes if that says nothing more."""

    def __init__(self, hint: Any) -> None:  # noqa: ANN401 - an annotation
        self._hint = hint
        self.converts = not any(hint is each for each in _AS_IT_COMES) and _is_known(hint)

    def convert(self, value: object) -> object:
        """The value that came back; `DecodeError` if it is of another type."""
        try:
            return _converted(value, self._hint)
        except MsgspecError:
            raise DecodeError("result", f"it is not {shown(self._hint)}") from None


def shown(hint: Any) -> str:  # noqa: ANN401 - an annotation
    """An annotation in words."""
    if isinstance(hint, type) and not hasattr(hint, "__args__"):
        return hint.__qualname__
    return str(hint).replace("typing.", "")


def _converted(value: object, hint: Any) -> Any:  # noqa: ANN401 - of that type
    return convert(value, hint, builtin_types=_NATIVE, dec_hook=_from_plain)


def _needs_no_help(kind: type[Struct]) -> bool:
    """Whether msgspec knows all that is in there, bytes aside.

    Converting takes half the time then: its keywords cost as much as a small conversion.
    """
    todo: list[object] = [type_info(kind)]
    seen: set[int] = set()
    while todo:
        each = todo.pop()
        if isinstance(each, _HELPED):
            return False
        if id(each) in seen or not isinstance(each, Type | Field | tuple):
            continue
        seen.add(id(each))
        todo.extend(each if isinstance(each, tuple) else astuple(each))
    return True


def _from_plain(kind: Any, value: object) -> object:  # noqa: ANN401 - what msgspec does not know
    if is_model(kind):
        try:
            return kind.model_validate(value, **_by_name_too(kind))
        except ValueError as error:
            raise _ModelMisfit(_field_of(kind, error)) from None
    if isinstance(value, kind):  # `object` is what every value is
        return value
    raise TypeError


@cache
def _by_name_too(model: Any) -> dict[str, bool]:  # noqa: ANN401 - a model of pydantic
    """A model travels by the names of its fields; before pydantic 2.11 only aliases are taken."""
    known = inspect.signature(model.model_validate).parameters
    return {"by_alias": True, "by_name": True} if "by_name" in known else {}


def _struct(task: str, parameters: tuple[Parameter, ...]) -> type[Struct]:
    for each in parameters:
        if not _is_known(each.hint):
            accepted = (
                "is no type that arguments can be converted to; types of a union must differ "
                "in MessagePack"
            )
            raise OptionError(f"{task}({each.name})", shown(each.hint), accepted)
    return defstruct(
        "Arguments",
        [_field(each) for each in parameters],
        forbid_unknown_fields=True,
        kw_only=True,
        gc=False,
    )


def _field(parameter: Parameter) -> tuple[str, Any] | tuple[str, Any, Any]:
    if parameter.required:
        return parameter.name, parameter.hint
    default = parameter.default
    # A factory, so that it is the function's own default and no copy.
    return parameter.name, parameter.hint, field(default_factory=lambda: default)


def _is_known(hint: Any) -> bool:  # noqa: ANN401 - an annotation
    try:
        Decoder(hint, dec_hook=_from_plain)
    except (TypeError, NameError):
        return False
    return True


def _place_of(error: MsgspecError) -> str:
    """Where in a value something was wrong: names of fields and indexes, no values."""
    found = _PLACE.search(str(error))
    place = found[1] if found else ""
    if isinstance(error.__cause__, _ModelMisfit):
        place = f"{place}.{error.__cause__}"
    return place.strip(".")


def _field_of(model: Any, error: ValueError) -> str:  # noqa: ANN401 - a model of pydantic
    """The field that pydantic refuses; what is no field may be a key of the user's."""
    errors = getattr(error, "errors", None)
    if not callable(errors):
        return ""
    where = errors(include_input=False, include_url=False, include_context=False)[0]["loc"]
    fields = model.model_fields
    known = {*fields, *(each.alias for each in fields.values())} - {"root"}
    return where[0] if where and where[0] in known else ""
