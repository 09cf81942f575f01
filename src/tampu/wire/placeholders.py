"""Arguments that are not known yet: placeholders for results, and what stands there in the end."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import Any, Final

from msgspec import MsgspecError, Raw, Struct
from msgspec.msgpack import Decoder, Encoder, Ext
from msgspec.structs import replace

from tampu.errors import DecodeError, EncodeError
from tampu.wire.envelope import Envelope, RetryOverride, Uint32, encode_envelope
from tampu.wire.fields import encode_name
from tampu.wire.flow import NewMember, StepId
from tampu.wire.msgpack import decode_as
from tampu.wire.payload import OWN_PAYLOAD, decode_payload, is_own_payload

_PLACEHOLDER: Final = 85  # the type of the extension that stands for a value

_encode: Final = Encoder().encode
_decode: Final = Decoder().decode


# --- arguments that are not known yet -----------------------------------------------------------


class Expected(IntEnum):
    """What stands in place of a placeholder in the end."""

    VALUE = 0  # the result of a node: of one with many jobs, the list of their results
    OUTCOME = 1  # its result or its failure
    DEFAULT = 2  # its result, or another value if it failed
    ITEM = 3  # what a job of a map is for
    PREVIOUS = 4  # the result of the step before
    REFERENCE = 5  # where the results of a node are


_READ: Final = frozenset({Expected.VALUE, Expected.OUTCOME, Expected.DEFAULT})


class Placeholder(Struct, frozen=True, array_like=True, omit_defaults=True):
    """Stands for a value in the arguments of a job, until it starts."""

    expected: Expected
    node: Uint32 = 0
    is_map: bool = False
    spreads: bool = False  # its items stand there, not the list of them
    default: Any = None

    @property
    def needs_value(self) -> bool:
        """Whether the result of its node must be read."""
        return self.expected in _READ

    def to_ext(self) -> Ext:
        """As it is written in arguments."""
        return Ext(_PLACEHOLDER, _encode(self))


_placeholder: Final = Decoder(Placeholder)


class Later:
    """Stands for a value to come, anywhere in arguments."""

    def __init__(self, placeholder: Placeholder) -> None:
        self.placeholder = placeholder


def _read_ext(code: int, data: memoryview) -> object:
    raw = bytes(data)
    if code == _PLACEHOLDER:
        with suppress(MsgspecError):  # the user's, not one of ours
            return _placeholder.decode(raw)
    return Ext(code, raw)


_decode_template: Final = Decoder(ext_hook=_read_ext).decode
_list_items: Final = Decoder(list[Raw])
ITEM: Final = Placeholder(Expected.ITEM)
PREVIOUS: Final = Placeholder(Expected.PREVIOUS)
_ITEM_BYTES: Final = _encode(ITEM.to_ext())


def placeholders_of(template: bytes) -> list[Placeholder]:
    """The placeholders in arguments."""
    found: list[Placeholder] = []

    def note(placeholder: Placeholder) -> object:
        found.append(placeholder)
        return None

    _replace(_decode_template(template), note)
    return found


def fill_template(template: bytes, value_of: Callable[[Placeholder], Raw | None]) -> bytes:
    """Arguments with values; placeholders stay for which there is None."""
    return _encode(_replace(_decode_template(template), value_of))


def _replace(value: object, value_of: Callable[[Placeholder], object]) -> object:
    if isinstance(value, Placeholder):
        found = value_of(value)
        return value.to_ext() if found is None else found
    if isinstance(value, dict):
        return {key: _replace(item, value_of) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    items: list[object] = []
    for item in value:
        if isinstance(item, Placeholder) and item.spreads:
            found = value_of(item)
            items += [item.to_ext()] if found is None else _spread(found)
        else:
            items.append(_replace(item, value_of))
    return items


def _spread(found: object) -> Sequence[object]:
    return split_list(bytes(found)) if isinstance(found, Raw) else ()


def split_list(data: bytes) -> list[Raw]:
    """The items of an encoded list, still encoded; `DecodeError` if it is none."""
    return decode_as(_list_items, data, what="result", expected="a list")


def join_list(items: Sequence[bytes], *, max_bytes: int) -> bytes:
    """Encoded items as one encoded list; `EncodeError` if it is too large."""
    size = sum(map(len, items))
    if size > max_bytes:
        raise EncodeError("items", f"they take {size} bytes; the limit is {max_bytes}")
    return _encode([Raw(each) for each in items])


class ItemTemplate:
    """The arguments of the jobs of a map, for one item after the other."""

    def __init__(self, template: bytes) -> None:
        self._template = template
        parts = template.split(_ITEM_BYTES)
        self._around = parts if len(parts) == 2 else None
        self._waits = any(each.expected is not Expected.ITEM for each in placeholders_of(template))

    def fill(self, item: Raw) -> bytes:
        """The payload of the job for an item."""
        if self._around is not None:
            before, behind = self._around
            data = b"".join((before, bytes(item), behind))
        else:
            data = fill_template(
                self._template, lambda each: item if each.expected is Expected.ITEM else None
            )
        return encode_inputs(data) if self._waits else data


# --- payloads of our own ------------------------------------------------------------------------

_INPUTS, _STEPS = b"i", b"s"


class Inputs(Struct, frozen=True):
    """Arguments with placeholders, as the payload of a job."""

    template: bytes


class ChainStep(Struct, frozen=True, array_like=True):
    """A step of a chain that is still to come: its task, its arguments and options."""

    name: str
    template: Raw
    extras: bytes = b""
    retry: RetryOverride | None = None


class StepPayload(Struct, frozen=True, array_like=True):
    """The arguments of a step, and the steps that follow it."""

    arguments: Raw
    steps: list[ChainStep]


_step_payload: Final = Decoder(StepPayload)


def encode_inputs(template: bytes) -> bytes:
    """The payload of a job that waits for values."""
    return _encode(Ext(OWN_PAYLOAD, _INPUTS + template))


def encode_steps(arguments: bytes, steps: Sequence[ChainStep]) -> bytes:
    """The payload of a step of a chain; plain arguments if no step follows."""
    if not steps:
        return arguments
    return _encode(Ext(OWN_PAYLOAD, _STEPS + _encode(StepPayload(Raw(arguments), list(steps)))))


def read_own_payload(data: bytes) -> Inputs | StepPayload | None:
    """What a payload of our own holds; None for any other. Raises `DecodeError`."""
    if not is_own_payload(data):
        return None
    value = decode_as(_own, data, what="payload", expected="an extension")
    own = bytes(value.data)
    kind, content = own[:1], own[1:]
    if kind == _INPUTS:
        return Inputs(content)
    if kind == _STEPS:
        return decode_as(_step_payload, content, what="payload", expected="the steps of a chain")
    raise DecodeError("payload", "this version does not know its kind")


_own: Final = Decoder(Ext)


def decode_shown(payload: bytes) -> object:
    """The data of a job to be looked at: values that are not known yet are texts in `<>`."""
    if not is_own_payload(payload):
        return decode_payload(payload)
    own = read_own_payload(payload)
    template = own.template if isinstance(own, Inputs) else bytes(own.arguments) if own else payload
    return _replace(_decode_template(template), lambda each: f"<result of node {each.node}>")


class StepEntry(Struct, frozen=True):
    """A step as it is added."""

    envelope: bytes
    name: bytes
    extras: bytes


def next_step(
    step: StepId, payload: StepPayload, result: bytes, *, created_at_ms: int
) -> StepEntry:
    """The step that follows, which gets the result of this one."""
    first, *later = payload.steps
    arguments = fill_template(bytes(first.template), lambda _: Raw(result))
    job_id = str(replace(step, step=step.step + 1))
    envelope = Envelope(job_id, encode_steps(arguments, later), created_at_ms, 0, first.retry)
    return StepEntry(encode_envelope(envelope), encode_name(first.name), first.extras)


# --- maps ---------------------------------------------------------------------------------------


class MapDefinition(Struct, frozen=True, kw_only=True):
    """A node with a job for each item: what they have in common, and where the items are.

    The items are encoded in `items`, or they are the result of the node `source`.
    """

    job: NewMember
    template: bytes
    items: bytes | None = None
    source: Placeholder | None = None
    extras: list[bytes] | None = None  # of each job, if they are not those of all

    def encode(self) -> bytes:
        """As the flow keeps it."""
        return _encode(self)


_map_definition: Final = Decoder(MapDefinition)


def decode_map(data: bytes) -> MapDefinition:
    """The definition of a map, or `DecodeError`."""
    return decode_as(_map_definition, data, what="map", expected="the definition of a map")


# --- values -------------------------------------------------------------------------------------

_FAILED: Final = b"\xc1"  # the begin of a stored failure in place of a result


def split_value(data: bytes) -> tuple[bytes, bool]:
    """A stored result or failure, and whether it is a result."""
    return (data[1:], False) if data.startswith(_FAILED) else (data, True)


class FlowValues:
    """The values of nodes that placeholders stand for; raw, as they were stored."""

    def __init__(self, flow_id: str, home: str) -> None:
        self._flow_id = flow_id
        self._home = home
        self._single: dict[int, bytes] = {}
        self._many: dict[int, Mapping[int, bytes]] = {}
        self._failed: set[int] = set()

    def note(self, node: int, value: bytes) -> None:
        """The stored value of a node with one job."""
        self._single[node] = value

    def note_many(self, node: int, values: Mapping[int, bytes]) -> None:
        """The stored values of a node with many, by the numbers of its jobs."""
        self._many[node] = values

    def note_failed(self, node: int) -> None:
        """More jobs of a node have failed than are tolerated."""
        self._failed.add(node)

    def value_of(self, placeholder: Placeholder) -> Raw:
        """What stands in place of it; `DecodeError` if it is missing."""
        node, expected = placeholder.node, placeholder.expected
        if expected is Expected.REFERENCE:
            where = {"flow": self._flow_id, "node": node, "queue": self._home}
            return Raw(_encode(where))
        if placeholder.is_map:
            if node not in self._many:
                raise _missing(node)
            return self._all_of(placeholder)
        if node not in self._single:
            raise _missing(node)
        value, is_result = split_value(self._single[node])
        if expected is Expected.OUTCOME:
            return Raw(_encode(_outcome(value, is_result=is_result)))
        if not is_result and expected is Expected.DEFAULT:
            return Raw(_encode(placeholder.default))
        if not is_result:
            raise DecodeError("argument", f"node {node} of its flow has failed")
        return Raw(value)

    def fill(self, template: bytes) -> bytes:
        """Arguments with all of their values."""
        return fill_template(template, self.value_of)

    def _all_of(self, placeholder: Placeholder) -> Raw:
        expected, values = placeholder.expected, self._many[placeholder.node]
        if expected is Expected.DEFAULT and placeholder.node in self._failed:
            return Raw(_encode(placeholder.default))
        found: Iterable[tuple[bytes, bool]] = (split_value(values[at]) for at in sorted(values))
        if expected is Expected.OUTCOME:
            return Raw(_encode([_outcome(value, is_result=is_done) for value, is_done in found]))
        return Raw(_encode([Raw(value) for value, is_done in found if is_done]))


def _outcome(value: bytes, *, is_result: bool) -> dict[str, object]:
    """As `Ok` and `NodeFailed` are written."""
    if is_result:
        return {"type": "ok", "value": Raw(value)}
    reason, error_type, message, _ = (*_decode(value), "", "", "", "")[:4]
    return {"type": "failed", "reason": reason, "error_type": error_type, "message": message}


def _missing(node: int) -> DecodeError:
    return DecodeError("argument", f"its flow has no result of node {node}: it was deleted")
