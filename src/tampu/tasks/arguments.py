"""Arguments of a task: bound to its signature, sent by name, converted by their annotations."""

import inspect
import re
from collections.abc import Collection, Mapping
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

# MessagePack has bytes: text in their place is a mistake, not Base64.
_BYTES_TYPES: Final = (bytes, bytearray, memoryview)
_SPECIAL_TYPES: Final = (BytesType, ByteArrayType, MemoryViewType, CustomType)
_ANY_SIZE: Final = 2**62
_MISSING: Final = "required, but missing"
_PATH: Final = re.compile(r" - at `\$([\w.\[\]]*)`\Z")
_UNCONVERTED: Final = (Any, None, type(None), object, bool, int, float, str, bytes, list, dict)


class InvalidArguments(Unrecoverable):
    """A job whose data does not fit the task's signature; retrying cannot help."""


class _InvalidModel(ValueError):
    """A value that a pydantic model rejects; the message is the name of the field."""


class Arguments:
    """The arguments of one task. Errors contain names and types, never values."""

    def __init__(self, task: str, signature: Signature) -> None:
        parameters = signature.parameters
        self._task = task
        self._injected = signature.injected
        self._parameters = {each.name: each for each in parameters}
        self._positional = [each.name for each in parameters if each.by_position]
        self._required = [each.name for each in parameters if each.required]
        self._struct = _make_struct(task, parameters)
        self._convert = convert if _is_simple(self._struct) else _convert

    @property
    def names(self) -> Collection[str]:
        """The names of all parameters that the caller fills."""
        return self._parameters.keys()

    def bind(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
        """The arguments of a call by name; `ArgumentError` if they do not fit."""
        bound = self.bind_some(args, kwargs)
        for name in self._required:
            if name not in bound:
                raise self._error(name, _MISSING)
        return bound

    def bind_some(
        self, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> dict[str, object]:
        """As `bind`, but required arguments may be missing."""
        most = len(self._positional)
        if len(args) > most:
            problem = f"expected at most {most} positional arguments, got {len(args)}"
            raise self._error(None, problem)
        bound: dict[str, object] = dict(zip(self._positional, args, strict=False))
        for name, value in kwargs.items():
            if name in bound:
                raise self._error(name, "given twice")
            if name not in self._parameters:
                raise self._unknown(name)
            bound[name] = value
        return bound

    def check(self, bound: dict[str, object]) -> None:
        """Refuse what the worker would refuse: encodes and decodes the arguments as it would."""
        try:
            data = decode_payload(encode_payload(bound, max_bytes=_ANY_SIZE))
            self._convert(data, self._struct)
        except (MsgspecError, EncodeError, DecodeError):
            raise self._explain_call(bound) from None

    def receive(self, name: str, value: object) -> object:
        """One argument as the function will get it; `ArgumentError` if it cannot be sent."""
        try:
            data = decode_payload(encode_payload(value, max_bytes=_ANY_SIZE))
            return _convert(data, self._parameters[name].hint)
        except (MsgspecError, EncodeError, DecodeError):
            raise self._error(name, "cannot be sent") from None

    def convert(self, data: object) -> dict[str, Any]:
        """The arguments in a job's data, converted to the types that the function expects.

        Missing ones get the function's defaults. `InvalidArguments` if they do not fit.
        """
        try:
            # Through a Struct: a TypedDict gives a dict directly, but takes three times as long.
            return asdict(self._convert({} if data is None else data, self._struct))
        except MsgspecError:
            raise InvalidArguments(str(self._explain(data))) from None

    def _explain_call(self, bound: dict[str, object]) -> ArgumentError:
        for name, value in bound.items():
            try:
                encode_payload(value, max_bytes=_ANY_SIZE)
            except EncodeError as error:
                return self._error(name, f"cannot be encoded: {error.problem}")
        try:
            return self._explain(decode_payload(encode_payload(bound, max_bytes=_ANY_SIZE)))
        except (EncodeError, DecodeError) as error:
            return self._error(None, f"the arguments cannot be encoded: {error.problem}")

    def _explain(self, data: object) -> ArgumentError:
        """The first problem in data that could not be converted."""
        if not isinstance(data, dict | None):
            return self._error(None, "the job's data must be a map of arguments")
        arguments: dict[object, object] = data or {}
        for name in arguments:
            if name not in self._parameters:
                return self._unknown(name)
        for name in self._parameters:
            if name in self._required and name not in arguments:
                return self._error(name, _MISSING)
            if name in arguments and (error := self._type_error(name, arguments[name])) is not None:
                return error
        return self._error(None, "the job's data does not fit the signature")

    def _type_error(self, name: str, value: object) -> ArgumentError | None:
        hint = self._parameters[name].hint
        try:
            _convert(value, hint)
        except MsgspecError as error:
            path = _error_path(error)
            expected = f"expected {describe_hint(hint)}"
            return self._error(name, f"{expected}; invalid at {path}" if path else expected)
        return None

    def _unknown(self, name: object) -> ArgumentError:
        if name in self._injected:
            return self._error(str(name), "injected by the worker; leave it out")
        known = ", ".join(self._parameters) or "none"
        if isinstance(name, str) and name.isidentifier() and len(name) <= 100:
            return self._error(name, f"unknown; the task accepts {known}")
        return self._error(None, f"unknown argument; the task accepts {known}")

    def _error(self, argument: str | None, problem: str) -> ArgumentError:
        return ArgumentError(self._task, argument, problem)


class ReturnType:
    """Converts a task's result to the annotated return type, where that makes a difference."""

    def __init__(self, hint: Any) -> None:  # noqa: ANN401 - an annotation
        self._hint = hint
        self.converts = not any(hint is each for each in _UNCONVERTED) and _is_supported(hint)

    def convert(self, value: object) -> object:
        """The result, converted; `DecodeError` if it has another type."""
        try:
            return _convert(value, self._hint)
        except MsgspecError:
            raise DecodeError("result", f"expected {describe_hint(self._hint)}") from None


def describe_hint(hint: Any) -> str:  # noqa: ANN401 - an annotation
    """An annotation as text."""
    if isinstance(hint, type) and not hasattr(hint, "__args__"):
        return hint.__qualname__
    return str(hint).replace("typing.", "")


def _convert(value: object, hint: Any) -> Any:  # noqa: ANN401 - of that type
    return convert(value, hint, builtin_types=_BYTES_TYPES, dec_hook=_decode_custom)


def _is_simple(kind: type[Struct]) -> bool:
    """Whether msgspec can convert it without our keywords: neither bytes nor custom types.

    That takes half the time, because the keywords cost as much as a small conversion.
    """
    todo: list[object] = [type_info(kind)]
    seen: set[int] = set()
    while todo:
        each = todo.pop()
        if isinstance(each, _SPECIAL_TYPES):
            return False
        if id(each) in seen or not isinstance(each, Type | Field | tuple):
            continue
        seen.add(id(each))
        todo.extend(each if isinstance(each, tuple) else astuple(each))
    return True


def _decode_custom(kind: Any, value: object) -> object:  # noqa: ANN401 - unknown to msgspec
    if is_model(kind):
        try:
            return kind.model_validate(value, **_validate_options(kind))
        except ValueError as error:
            raise _InvalidModel(_rejected_field(kind, error)) from None
    if isinstance(value, kind):  # for `object` every value will do
        return value
    raise TypeError


@cache
def _validate_options(model: Any) -> dict[str, bool]:  # noqa: ANN401 - a pydantic model
    """Models are sent by field name. Before pydantic 2.11, only aliases are accepted."""
    known = inspect.signature(model.model_validate).parameters
    return {"by_alias": True, "by_name": True} if "by_name" in known else {}


def _make_struct(task: str, parameters: tuple[Parameter, ...]) -> type[Struct]:
    for each in parameters:
        if not _is_supported(each.hint):
            problem = (
                "not supported as the type of an argument; types of a union must differ in "
                "MessagePack"
            )
            raise OptionError(f"{task}({each.name})", describe_hint(each.hint), problem)
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
    # A factory, because msgspec would copy a mutable default.
    return parameter.name, parameter.hint, field(default_factory=lambda: default)


def _is_supported(hint: Any) -> bool:  # noqa: ANN401 - an annotation
    try:
        Decoder(hint, dec_hook=_decode_custom)
    except (TypeError, NameError):
        return False
    return True


def _error_path(error: MsgspecError) -> str:
    """Where in a value the error is: names of fields and indexes, no values."""
    found = _PATH.search(str(error))
    path = found[1] if found else ""
    if isinstance(error.__cause__, _InvalidModel):
        path = f"{path}.{error.__cause__}"
    return path.strip(".")


def _rejected_field(model: Any, error: ValueError) -> str:  # noqa: ANN401 - a pydantic model
    """The field that pydantic rejects; empty if it is not a field but a key of the user's data."""
    errors = getattr(error, "errors", None)
    if not callable(errors):
        return ""
    where = errors(include_input=False, include_url=False, include_context=False)[0]["loc"]
    fields = model.model_fields
    known = {*fields, *(each.alias for each in fields.values())} - {"root"}
    return where[0] if where and where[0] in known else ""
