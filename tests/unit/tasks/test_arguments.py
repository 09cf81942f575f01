"""Binding and conversion: what a call gives is what the function gets, or a named refusal."""

import dataclasses
import enum
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import pydantic
import pytest
from pydantic.alias_generators import to_camel

from tampu.errors import ArgumentError, DecodeError, OptionError
from tampu.job import Job
from tampu.tasks.arguments import Arguments, InvalidArguments, ReturnType
from tampu.tasks.signature import Depends, signature_of
from tampu.wire.payload import decode_payload, encode_payload

SECRET = "s3cr3t"  # noqa: S105 - must not be found in a text


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


def sent(function: Callable[..., object], *args: object, **kwargs: object) -> dict[str, Any]:
    """The arguments as they arrive."""
    arguments = arguments_of(function)
    bound = arguments.bind(args, kwargs)
    arguments.check(bound)
    return arguments.convert(decode_payload(encode_payload(bound, max_bytes=10_000)))


def send(to: str, template: str = "hello", *, copies: int = 1) -> None: ...


class TestBinding:
    def test_arguments_travel_by_name_and_only_those_given(self) -> None:
        bind = arguments_of(send).bind
        assert bind(("ada",), {}) == {"to": "ada"}
        assert bind((), {"copies": 2, "to": "ada"}) == {"copies": 2, "to": "ada"}

    @pytest.mark.parametrize(
        ("args", "kwargs", "argument", "sentence"),
        [
            ((), {}, "to", "argument to is missing"),
            (("a",), {"to": "b"}, "to", "argument to is given twice"),
            (("a",), {"copy": 1}, "copy", "copy is unknown; it takes to, template, copies"),
            (("a", "b", 3), {}, None, "takes 2 arguments by position, and 3 are given"),
        ],
    )
    def test_what_does_not_fit_the_signature_is_named(
        self, args: tuple[object, ...], kwargs: dict[str, object], argument: str, sentence: str
    ) -> None:
        with pytest.raises(ArgumentError, match=sentence) as refusal:
            arguments_of(send).bind(args, kwargs)
        assert (refusal.value.task, refusal.value.argument) == ("send", argument)

    def test_it_is_a_type_error_as_that_of_a_plain_call(self) -> None:
        with pytest.raises(TypeError):
            arguments_of(send).bind((), {})

    def test_what_a_worker_fills_takes_no_position_and_cannot_be_given(self) -> None:
        def task(job: Job[Any], to: str, db: Annotated[str, Depends(dict)]) -> None: ...

        arguments = arguments_of(task)
        assert arguments.bind(("ada",), {}) == {"to": "ada"}
        for name in ("job", "db"):
            with pytest.raises(ArgumentError, match=f"{name} is filled by the worker"):
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
    (Any, {"what": ["ever", 1]}),
    (object, {"what": ["ever", 1]}),
    (dict[str, object], {"what": None}),
]


class TestConversion:
    @pytest.mark.parametrize(("hint", "value"), VALUES, ids=lambda each: str(each)[:40])
    def test_every_type_arrives_as_what_it_was(self, hint: object, value: object) -> None:
        def task(value: Any) -> None: ...  # noqa: ANN401 - set below

        task.__annotations__["value"] = hint
        arrived = sent(task, value)
        assert arrived == {"value": value}
        assert type(arrived["value"]) is type(value)

    def test_without_an_annotation_anything_goes(self) -> None:
        def task(value) -> None: ...  # type: ignore[no-untyped-def] # noqa: ANN001

        assert sent(task, {"a": [1, None]}) == {"value": {"a": [1, None]}}

    def test_defaults_are_the_functions_own_and_apply_on_arrival(self) -> None:
        shared: list[int] = [1]

        def task(to: str, more: list[int] = shared) -> None: ...

        assert sent(task, "ada")["more"] is shared

    def test_no_data_at_all_is_a_call_without_arguments(self) -> None:
        assert arguments_of(lambda: None).convert(None) == {}

    def test_a_text_is_no_bytes_however_deep(self) -> None:
        def task(raw: bytes) -> None: ...
        def deep(raw: list[Attached | None]) -> None: ...

        for function, value in ((task, "aGk="), (deep, [{"body": {"a": "aGk="}}])):
            with pytest.raises(InvalidArguments, match="argument raw must be"):
                arguments_of(function).convert({"raw": value})

    def test_an_annotation_that_cannot_be_told_apart_is_refused(self) -> None:
        def task(what: Address | Picky) -> None: ...

        with pytest.raises(OptionError, match=r"send\(what\).*union"):
            arguments_of(task)


WRONG = [
    (str, 5, "must be str"),
    (int, SECRET, "must be int"),
    (uuid.UUID, SECRET, "must be UUID"),
    (Decimal, SECRET, "must be Decimal"),
    (Colour, SECRET, "must be Colour"),
    (Literal["a"], SECRET, r"must be Literal\['a'\]"),
    (datetime, SECRET, "must be datetime"),
    (list[int], [1, SECRET], r"must be list\[int\], and does not fit at \[1\]"),
    (dict[str, int], {SECRET: SECRET}, r"does not fit at \[\.\.\.\]"),
    (Address, {"street": 1}, "must be Address, and does not fit at street"),
    (Address, {SECRET: 1}, "must be Address"),
    (list[Address], [{"street": "a", "number": SECRET}], r"does not fit at \[0\]\.number"),
    (Picky, {"value": SECRET}, "must be Picky"),
    (Line, {"article": "a", "price": SECRET}, "must be Line, and does not fit at price"),
    (list[Line], [{"article": SECRET}], r"does not fit at \[0\]\.price"),
    (Prices, {SECRET: SECRET}, "must be Prices"),
    (Named, {"no": SECRET}, "must be Named, and does not fit at no"),
    (Annotated[int, msgspec.Meta(gt=0)], -1, "must be .*Meta"),
]


class TestRefusal:
    @pytest.mark.parametrize(("hint", "value", "sentence"), WRONG)
    def test_a_wrong_value_is_refused_with_its_place_and_never_quoted(
        self, hint: object, value: object, sentence: str
    ) -> None:
        def task(value: Any) -> None: ...  # noqa: ANN401 - set below

        task.__annotations__["value"] = hint
        arguments = arguments_of(task)
        with pytest.raises(ArgumentError, match=f"task send: argument value .*{sentence}") as early:
            arguments.check({"value": value})
        with pytest.raises(InvalidArguments, match=sentence) as late:
            arguments.convert({"value": value})
        assert SECRET not in str(early.value) + str(late.value)

    def test_what_no_wire_carries_is_refused_by_name(self) -> None:
        with pytest.raises(ArgumentError, match=r"argument to cannot travel: .*builtins.object"):
            arguments_of(send).check({"to": object()})

    @pytest.mark.parametrize(
        ("data", "sentence"),
        [
            ([1], "the data of the job is no map of arguments"),
            ({}, "argument to is missing"),
            (None, "argument to is missing"),
            ({"to": "ada", "cc": 1}, "argument cc is unknown"),
            ({"to": "ada", "not a name": 1}, "an argument is unknown; it takes to"),
            ({"to": "ada", 5: 1}, "an argument is unknown"),
        ],
    )
    def test_data_of_another_shape_is_refused_on_arrival(self, data: object, sentence: str) -> None:
        with pytest.raises(InvalidArguments, match=sentence):
            arguments_of(send).convert(data)


class TestResults:
    @pytest.mark.parametrize("hint", [Any, None, str, int, dict, list])
    def test_what_messagepack_tells_itself_is_left_as_it_comes(self, hint: object) -> None:
        assert not ReturnType(hint).converts

    def test_others_become_what_the_annotation_says(self) -> None:
        returned = ReturnType(list[Address])
        assert returned.converts
        assert returned.convert([{"street": "Elm"}]) == [Address("Elm")]

    def test_a_value_of_another_type_is_refused_unquoted(self) -> None:
        with pytest.raises(DecodeError, match="it is not Address") as refusal:
            ReturnType(Address).convert({"street": 5, "x": SECRET})
        assert SECRET not in str(refusal.value)
