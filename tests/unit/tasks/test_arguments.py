"""Arguments: the function gets what the caller passed, or an error names the argument."""

import dataclasses
import enum
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple, Protocol

import msgspec
import pydantic
import pytest
from pydantic.alias_generators import to_camel

from tampu.errors import ArgumentError, DecodeError, OptionError
from tampu.job import Job
from tampu.tasks.arguments import Arguments, InvalidArguments, ReturnType
from tampu.tasks.signature import Depends, signature_of
from tampu.wire.payload import decode_payload, encode_payload

SECRET = "s3cr3t"  # noqa: S105 - must not appear in any message


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@dataclasses.dataclass(frozen=True)
class Address:
    street: str
    number: int = 1


class Point(msgspec.Struct):
    x: int
    y: int


class Pair(NamedTuple):
    left: int
    right: str


class Line(pydantic.BaseModel):
    article: str
    price: Decimal


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]


@dataclasses.dataclass
class Bounded:
    size: Annotated[int, pydantic.Field(gt=0)]


class Plain:
    """A class that nothing can encode."""


class Speaking(Protocol):
    def speak(self) -> str: ...


def refuse(value: str) -> str:
    raise ValueError(value)


class Prices(pydantic.RootModel[dict[str, int]]):
    pass


class Named(pydantic.BaseModel):
    number: int = pydantic.Field(alias="no")


class Camel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(alias_generator=to_camel, extra="forbid")

    unit_price: Decimal
    named: Named

    @pydantic.computed_field
    def doubled(self) -> Decimal:
        return 2 * self.unit_price


class Order(pydantic.BaseModel):
    id: uuid.UUID
    lines: list[Line]


@dataclasses.dataclass
class Attached:
    body: dict[str, bytes]
    next: "Attached | None" = None


@dataclasses.dataclass
class Picky:
    value: str

    def __post_init__(self) -> None:
        raise ValueError(f"not {self.value}")


def arguments_of(function: Callable[..., object]) -> Arguments:
    return Arguments("send", signature_of(function))


def send_and_convert(
    function: Callable[..., object], *args: object, **kwargs: object
) -> dict[str, Any]:
    """The arguments that the function gets."""
    arguments = arguments_of(function)
    bound = arguments.bind(args, kwargs)
    arguments.check(bound)
    return arguments.convert(decode_payload(encode_payload(bound, max_bytes=10_000)))


def send(to: str, template: str = "hello", *, copies: int = 1) -> None: ...


class TestBinding:
    def test_only_the_given_arguments_are_sent_by_name(self) -> None:
        bind = arguments_of(send).bind
        assert bind(("ada",), {}) == {"to": "ada"}
        assert bind((), {"copies": 2, "to": "ada"}) == {"copies": 2, "to": "ada"}

    @pytest.mark.parametrize(
        ("args", "kwargs", "argument", "sentence"),
        [
            ((), {}, "to", "argument 'to': required, but missing"),
            (("a",), {"to": "b"}, "to", "argument 'to': given twice"),
            (
                ("a",),
                {"copy": 1},
                "copy",
                "'copy': unknown; the task accepts to, template, copies",
            ),
            (("a", "b", 3), {}, None, "expected at most 2 positional arguments, got 3"),
        ],
    )
    def test_an_argument_that_does_not_fit_is_named(
        self, args: tuple[object, ...], kwargs: dict[str, object], argument: str, sentence: str
    ) -> None:
        with pytest.raises(ArgumentError, match=sentence) as refusal:
            arguments_of(send).bind(args, kwargs)
        assert (refusal.value.task, refusal.value.argument) == ("send", argument)

    def test_it_is_a_type_error_as_for_a_plain_call(self) -> None:
        with pytest.raises(TypeError):
            arguments_of(send).bind((), {})

    def test_injected_parameters_take_no_position_and_cannot_be_given(self) -> None:
        def task(job: Job[Any], to: str, db: Annotated[str, Depends(dict)]) -> None: ...

        arguments = arguments_of(task)
        assert arguments.bind(("ada",), {}) == {"to": "ada"}
        for name in ("job", "db"):
            with pytest.raises(ArgumentError, match=f"'{name}': injected by the worker"):
                arguments.bind(("ada",), {name: 1})


VALUES = [
    (str, "ada"),
    (int, 5),
    (float, 0.5),
    (bool, True),
    (bytes, b"\x00\xff"),
    (None, None),
    (list[int], [1, 2]),
    (dict[str, int], {"a": 1}),
    (set[int], {1, 2}),
    (tuple[int, str], (1, "a")),
    (str | None, None),
    (Literal["a", "b"], "b"),
    (Annotated[int, msgspec.Meta(gt=0)], 1),
    (datetime, datetime(2026, 11, 15, 12, tzinfo=UTC)),
    (datetime, datetime(2026, 11, 15, 12)),  # noqa: DTZ001 - a user may
    (date, date(2026, 11, 15)),
    (time, time(12, 30)),
    (timedelta, timedelta(days=1, seconds=5)),
    (uuid.UUID, uuid.UUID(int=5)),
    (Decimal, Decimal("1.10")),
    (Colour, Colour.RED),
    (Level, Level.HIGH),
    (Address, Address("Elm", 3)),
    (list[Address], [Address("Elm")]),
    (Point, Point(1, 2)),
    (Pair, Pair(1, "a")),
    (Attached, Attached({"a": b"b"}, Attached({}))),
    (Line, Line(article="a", price=Decimal("1.5"))),
    (Line | None, Line(article="a", price=Decimal("1.5"))),
    (Order, Order(id=uuid.UUID(int=1), lines=[Line(article="a", price=Decimal(1))])),
    (Prices, Prices({"a": 1})),
    (Camel, Camel.model_validate({"unitPrice": "1.5", "named": {"no": 1}})),
    (dict[str, Line], {"a": Line(article="a", price=Decimal(1))}),
    (Line | Named, Named.model_validate({"no": 1})),
    (list[Line | Named], [Line(article="a", price=Decimal(1))]),
    (Annotated[Cat | Dog, pydantic.Field(discriminator="kind")], Dog(kind="dog")),
    (Annotated[int, pydantic.Field(gt=0)], 1),
    (pydantic.PositiveInt | None, None),
    (Bounded, Bounded(3)),
    (Path, Path("a/b")),
    (PurePosixPath, PurePosixPath("/a")),
    (dict[str, list[Path]], {"a": [Path("b")]}),
    (Any, {"what": ["ever", 1]}),
    (object, {"what": ["ever", 1]}),
    (dict[str, object], {"what": None}),
]


class TestConversion:
    @pytest.mark.parametrize(("hint", "value"), VALUES, ids=lambda each: str(each)[:40])
    def test_every_supported_type_survives(self, hint: object, value: object) -> None:
        def task(value: Any) -> None: ...  # noqa: ANN401 - set below

        task.__annotations__["value"] = hint
        arrived = send_and_convert(task, value)
        assert arrived == {"value": value}
        assert type(arrived["value"]) is type(value)

    def test_an_argument_without_annotation_may_be_anything(self) -> None:
        def task(value) -> None: ...  # type: ignore[no-untyped-def] # noqa: ANN001

        assert send_and_convert(task, {"a": [1, None]}) == {"value": {"a": [1, None]}}

    def test_missing_arguments_get_the_defaults_of_the_function(self) -> None:
        shared: list[int] = [1]

        def task(to: str, more: list[int] = shared) -> None: ...

        assert send_and_convert(task, "ada")["more"] is shared

    def test_no_data_means_no_arguments(self) -> None:
        assert arguments_of(lambda: None).convert(None) == {}

    def test_text_is_not_accepted_as_bytes_at_any_depth(self) -> None:
        def task(raw: bytes) -> None: ...
        def deep(raw: list[Attached | None]) -> None: ...

        for function, value in ((task, "aGk="), (deep, [{"body": {"a": "aGk="}}])):
            with pytest.raises(InvalidArguments, match="argument 'raw': expected "):
                arguments_of(function).convert({"raw": value})

    @pytest.mark.parametrize("hint", [Plain, list[Plain], complex, Callable, Speaking])
    def test_a_type_that_no_argument_can_have_is_refused(self, hint: object) -> None:
        def task(value: Any) -> None: ...  # noqa: ANN401 - set below

        task.__annotations__["value"] = hint
        where = "Invalid parameter value of task send '"
        with pytest.raises(OptionError, match=rf"{where}.*\w cannot be sent; use "):
            arguments_of(task)

    def test_a_type_that_pydantic_does_not_know_is_refused_with_its_words(self) -> None:
        def task(value: Annotated[Plain, pydantic.Field(description="a thing")]) -> None: ...

        with pytest.raises(OptionError, match="pydantic does not support it: Unable to generate"):
            arguments_of(task)

    def test_a_union_of_types_that_look_alike_is_refused(self) -> None:
        def task(what: Address | Picky) -> None: ...

        with pytest.raises(OptionError, match=r"parameter what of task send .*union"):
            arguments_of(task)


WRONG = [
    (str, 5, "expected str"),
    (int, SECRET, "expected int"),
    (uuid.UUID, SECRET, "expected UUID"),
    (Decimal, SECRET, "expected Decimal"),
    (Colour, SECRET, "expected Colour"),
    (Literal["a"], SECRET, r"expected Literal\['a'\]"),
    (datetime, SECRET, "expected datetime"),
    (list[int], [1, SECRET], r"expected list\[int\]; invalid at \[1\]"),
    (dict[str, int], {SECRET: SECRET}, r"invalid at \[\.\.\.\]"),
    (Address, {"street": 1}, "expected Address; invalid at street"),
    (Address, {SECRET: 1}, "expected Address"),
    (list[Address], [{"street": "a", "number": SECRET}], r"invalid at \[0\]\.number"),
    (Picky, {"value": SECRET}, "expected Picky"),
    (Line, {"article": "a", "price": SECRET}, "expected Line; invalid at price"),
    (list[Line], [{"article": SECRET}], r"invalid at \[0\]\.price"),
    (Prices, {SECRET: SECRET}, "expected Prices"),
    (Named, {"no": SECRET}, "expected Named; invalid at no"),
    (Annotated[int, msgspec.Meta(gt=0)], -1, "expected .*Meta"),
    (Annotated[int, pydantic.Field(gt=0)], -1, "expected int; input should be greater than 0"),
    (list[pydantic.PositiveInt], [1, -1], "input should be greater than 0"),
    (Annotated[str, pydantic.Field(pattern="^A+$")], SECRET, r"match pattern '\^A\+\$'"),
    (Annotated[str, pydantic.AfterValidator(refuse)], SECRET, "pydantic refuses it: value_error"),
    (Line | Named, {SECRET: 1}, "pydantic refuses it: missing"),
    (Bounded, {"size": -1}, "expected Bounded; input should be greater than 0"),
    (Path, 5, "expected Path"),
]


class TestRefusal:
    @pytest.mark.parametrize(("hint", "value", "sentence"), WRONG)
    def test_a_wrong_value_is_located_and_never_quoted(
        self, hint: object, value: object, sentence: str
    ) -> None:
        def task(value: Any) -> None: ...  # noqa: ANN401 - set below

        task.__annotations__["value"] = hint
        arguments = arguments_of(task)
        pattern = f"Task 'send', argument 'value': .*{sentence}"
        with pytest.raises(ArgumentError, match=pattern) as early:
            arguments.check({"value": value})
        with pytest.raises(InvalidArguments, match=sentence) as late:
            arguments.convert({"value": value})
        assert SECRET not in str(early.value) + str(late.value)

    def test_an_argument_that_cannot_be_encoded_is_named(self) -> None:
        with pytest.raises(
            ArgumentError, match=r"argument 'to': cannot be encoded: .*builtins.object"
        ):
            arguments_of(send).check({"to": object()})

    @pytest.mark.parametrize(
        ("data", "sentence"),
        [
            ([1], "the job's data must be a map of arguments"),
            ({}, "argument 'to': required, but missing"),
            (None, "argument 'to': required, but missing"),
            ({"to": "ada", "cc": 1}, "argument 'cc': unknown"),
            ({"to": "ada", "not a name": 1}, "unknown argument; the task accepts to"),
            ({"to": "ada", 5: 1}, "unknown argument"),
        ],
    )
    def test_data_that_does_not_fit_is_refused_by_the_worker(
        self, data: object, sentence: str
    ) -> None:
        with pytest.raises(InvalidArguments, match=sentence):
            arguments_of(send).convert(data)


class TestResults:
    @pytest.mark.parametrize("hint", [Any, None, str, int, dict, list])
    def test_types_of_messagepack_are_not_converted(self, hint: object) -> None:
        assert not ReturnType(hint).converts

    def test_other_types_are_converted_to_the_annotation(self) -> None:
        kind = ReturnType(list[Address])
        assert kind.converts
        assert kind.convert([{"street": "Elm"}]) == [Address("Elm")]

    def test_a_result_of_another_type_is_refused_and_not_quoted(self) -> None:
        with pytest.raises(DecodeError, match="expected Address") as refusal:
            ReturnType(Address).convert({"street": 5, "x": SECRET})
        assert SECRET not in str(refusal.value)
