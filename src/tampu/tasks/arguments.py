"""Arguments of a task: bound to its signature, sent by name, converted by their annotations."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT, MsgspecError, Struct, convert, defstruct, field
from msgspec.inspect import DataclassType, Field, StructType, TypedDictType, type_info
from msgspec.structs import asdict, replace

from tampu.consumer.batch import JobBatch
from tampu.errors import ArgumentError, DecodeError, EncodeError, OptionError
from tampu.job import Host, Job, JobActions
from tampu.outcome import Unrecoverable
from tampu.tasks.hints import (
    Unsupported,
    convert_to,
    converts_simply,
    describe_hint,
    invalid_part,
    prepare_hint,
)
from tampu.tasks.signature import NO_ANNOTATION, NO_DEFAULT, Parameter, Signature
from tampu.util.clock import Duration
from tampu.wire.output import JobOutput, OutputRules
from tampu.wire.payload import decode_payload, encode_payload, is_model
from tampu.wire.placeholders import Later, Placeholder
from tampu.wire.result import NodeResults

WHOLE: Final = ""
_ANY_SIZE: Final = 2**62
_EXPECTED: Final = (
    "expected JobBatch[Record], where Record is a dataclass, a TypedDict, a msgspec.Struct or a "
    "pydantic model with the data of one job"
)
_MISSING: Final = "required, but missing"
_PLAIN_TYPES: Final = (type(None), object, bool, int, float, str, bytes, list, dict)
_UNCONVERTED: Final = (NO_ANNOTATION, Any, None, *_PLAIN_TYPES)


class InvalidArguments(Unrecoverable):
    """A job whose data does not fit the task's signature; retrying cannot help."""


class Arguments:
    """The arguments of one task. Errors contain names and types, never values."""

    def __init__(self, task: str, signature: Signature) -> None:
        parameters = tuple(_prepare(task, each) for each in signature.parameters)
        self._task = task
        self._injected = signature.injected
        self._parameters = {each.name: each for each in parameters}
        self._positional = [each.name for each in parameters if each.by_position]
        self._required = [each.name for each in parameters if each.required]
        self._struct = _make_struct(parameters)
        self._convert = convert if converts_simply(self._struct) else convert_to

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

    def check_some(self, known: Mapping[str, object]) -> None:
        """As `check`, for those arguments of a call that are known."""
        for name, value in known.items():
            self.receive(name, value)

    def check_first(self, items: Sequence[object]) -> None:
        """Refuse items that do not fit the first parameter."""
        name = self._positional[0]
        for item in items:
            self.receive(name, item)

    def accepts(self, name: str, value: object) -> bool:
        """Whether a decoded value fits a parameter; also if there is no such parameter."""
        return name not in self._parameters or self._type_error(name, value) is None

    def receive(self, name: str, value: object) -> object:
        """One argument as the function will get it; `ArgumentError` if it cannot be sent."""
        try:
            data = decode_payload(encode_payload(value, max_bytes=_ANY_SIZE))
        except (EncodeError, DecodeError) as error:
            raise self._error(name, f"cannot be encoded: {error.problem}") from None
        refusal = self._type_error(name, data)
        if refusal is not None:
            raise refusal
        return convert_to(data, self._parameters[name].hint)

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
            convert_to(value, hint)
        except MsgspecError as error:
            part, expected = invalid_part(error), f"expected {describe_hint(hint)}"
            return self._error(name, f"{expected}; {part}" if part else expected)
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


class RecordArguments(Arguments):
    """The arguments of a job for a batch: the fields of a record, or the record itself.

    A record that is not known yet, since it is the result of a node, has the name `WHOLE`.
    """

    def __init__(self, task: str, signature: Signature, record: Any) -> None:  # noqa: ANN401 - a type
        super().__init__(task, signature)
        self._record = record

    def bind_some(
        self, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> dict[str, object]:
        """The fields of the record that was given, or fields by name."""
        if not args:
            return super().bind_some(args, kwargs)
        if len(args) > 1 or kwargs:
            raise self._error(None, f"expected one {describe_hint(self._record)}")
        if isinstance(args[0], Later | Placeholder):
            return {WHOLE: args[0]}
        try:
            bound = decode_payload(encode_payload(args[0], max_bytes=_ANY_SIZE))
        except (EncodeError, DecodeError) as error:
            raise self._error(None, f"it cannot be encoded: {error.problem}") from None
        if not isinstance(bound, dict):
            raise self._error(None, f"expected a {describe_hint(self._record)}")
        return bound

    def bind(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
        """The fields of a record by name; `ArgumentError` if they do not fit."""
        bound = self.bind_some(args, kwargs)
        return bound if WHOLE in bound else super().bind((), bound)

    def check_first(self, items: Sequence[object]) -> None:
        """Refuse items that are no such records."""
        for item in items:
            self.check(self.bind((item,), {}))

    def check(self, bound: dict[str, object]) -> None:
        """Refuse what the worker would refuse."""
        super().check(bound)
        data = decode_payload(encode_payload(bound, max_bytes=_ANY_SIZE))
        try:
            convert_to(data, self._record)
        except MsgspecError as error:
            raise self._explain_record(data, error) from None

    def to_record(self, data: object) -> object:
        """The record in a job's data; `InvalidArguments` if it does not fit."""
        try:
            return convert_to({} if data is None else data, self._record)
        except MsgspecError as error:
            raise InvalidArguments(str(self._explain_record(data, error))) from None

    def _explain_record(self, data: object, error: MsgspecError) -> ArgumentError:
        explained, part = self._explain(data), invalid_part(error)
        if explained.argument is not None or not part:
            return explained
        return self._error(None, f"expected a {describe_hint(self._record)}; {part}")


class _NoArguments(Arguments):
    """The arguments of a call that gets a batch: none besides that."""

    def convert(self, data: object) -> dict[str, Any]:
        """None."""
        return {}


def without_arguments(signature: Signature) -> Arguments:
    """The arguments of a function that gets its batch as if it were its job."""
    return _NoArguments("", signature)


class BatchParts:
    """What the signature of a function that takes a batch says about its jobs."""

    def __init__(self, task: str, signature: Signature) -> None:
        taking = [each for each in signature.parameters if takes_batch(each)]
        others = [each.name for each in signature.parameters if each not in taking]
        others += signature.job_parameters
        if len(taking) != 1 or others:
            names = ", ".join([*(each.name for each in taking[1:]), *others]) or "no JobBatch"
            problem = "a task with batch takes one JobBatch[...], and dependencies"
            raise OptionError("parameter", names, problem)
        record = next(iter(get_args(taking[0].hint)), Any)
        self.signature = replace(signature, parameters=(), job_parameters=(taking[0].name,))
        fields = Signature(_fields_of(taking[0].name, record), (), {}, None)
        self.arguments = RecordArguments(task, fields, record)


def takes_batch(parameter: Parameter) -> bool:
    """Whether a parameter is annotated with `JobBatch`."""
    return JobBatch in (parameter.hint, get_origin(parameter.hint))


def refuse_batch(signature: Signature) -> None:
    """Refuse a function that takes a batch, as the task has none."""
    for each in signature.parameters:
        if takes_batch(each):
            problem = "its type is JobBatch: declare the task with batch=Batch(...)"
            raise OptionError("parameter", each.name, problem)


class ReturnType:
    """Converts a task's result to the annotated return type, where that makes a difference."""

    def __init__(self, hint: Any) -> None:  # noqa: ANN401 - an annotation
        self._hint, self.converts = hint, False
        if not any(hint is each for each in _UNCONVERTED):
            with suppress(Unsupported):
                self._hint, self.converts = prepare_hint(hint), True

    def convert(self, value: object) -> object:
        """The result, converted if needed; `DecodeError` if it has another type."""
        if not self.converts:
            return value
        try:
            return convert_to(value, self._hint)
        except MsgspecError:
            raise DecodeError("result", f"expected {describe_hint(self._hint)}") from None


class ConvertingHost:
    """The host of a job whose result is converted to the task's return type."""

    def __init__(self, host: Host, return_type: ReturnType) -> None:
        self._host, self._return_type = host, return_type

    @property
    def actions(self) -> JobActions:
        """Passed on."""
        return self._host.actions

    async def wait_for_result(self, job_id: str, timeout: Duration) -> object:
        """The result, converted."""
        return self._return_type.convert(await self._host.wait_for_result(job_id, timeout))

    def read_results(self, of: NodeResults) -> AsyncIterator[object]:
        """Passed on."""
        return self._host.read_results(of)

    def charge(self, resources: list[str], tokens: int) -> None:
        """Passed on."""
        self._host.charge(resources, tokens)

    def open_output(self, job: Job[Any], rules: OutputRules) -> JobOutput:
        """Passed on."""
        return self._host.open_output(job, rules)

    def report_progress(self, job: Job[Any], percent: int) -> None:
        """Passed on."""
        self._host.report_progress(job, percent)


def _prepare(task: str, parameter: Parameter) -> Parameter:
    """The parameter with a hint that msgspec can convert to."""
    try:
        return replace(parameter, hint=prepare_hint(parameter.hint))
    except Unsupported as error:
        name, given = f"parameter {parameter.name} of task {task}", describe_hint(parameter.hint)
        raise OptionError(name, given, str(error)) from None


def _make_struct(parameters: tuple[Parameter, ...]) -> type[Struct]:
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


def _fields_of(parameter: str, record: Any) -> tuple[Parameter, ...]:  # noqa: ANN401 - a type
    if is_model(record):
        return _fields_of_model(record)
    try:
        info: Any = type_info(record)
    except TypeError:
        info = None
    is_record = isinstance(info, StructType | DataclassType | TypedDictType)
    if not is_record or getattr(info, "array_like", False):
        raise OptionError("parameter", parameter, _EXPECTED)
    hints = get_type_hints(record, include_extras=True)
    fields: Sequence[Field] = info.fields
    return tuple(
        Parameter(each.encode_name, hints[each.name], _default_of(each), by_position=False)
        for each in fields
    )


def _default_of(field: Field) -> object:
    if field.default_factory is not NODEFAULT:
        return field.default_factory()
    if field.default is not NODEFAULT:
        return field.default
    return NO_DEFAULT if field.required else None


def _fields_of_model(model: Any) -> tuple[Parameter, ...]:  # noqa: ANN401 - a pydantic model
    hints = get_type_hints(model, include_extras=True)
    return tuple(
        Parameter(
            name,
            hints[name],
            NO_DEFAULT if each.is_required() else each.get_default(call_default_factory=True),
            by_position=False,
        )
        for name, each in model.model_fields.items()
    )
