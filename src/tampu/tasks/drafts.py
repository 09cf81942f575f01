"""Jobs of flows and chains before they are added: arguments may stand for results to come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from tampu.errors import OptionError
from tampu.producer.batch import needs_of
from tampu.producer.request import Request, with_headers
from tampu.server.scripts.flows import GateNeeds
from tampu.wire.extras import encode_extras
from tampu.wire.placeholders import Later, Placeholder

if TYPE_CHECKING:
    from tampu.wire.envelope import RetryOverride

_REFUSED: Final = (
    "jobs of flows and chains start when what they wait for is done; they cannot have it"
)


class Draft(Struct, frozen=True):
    """A job to come: its queue, its request without an id, and the values that it waits for."""

    queue: str
    request: Request
    later: tuple[Later, ...] = ()

    @property
    def name(self) -> str:
        """The name of its task."""
        return self.request.name

    @property
    def template(self) -> bytes:
        """Its arguments, with placeholders."""
        return self.request.payload

    @property
    def extras(self) -> bytes:
        """Its extras, b"" for none."""
        return encode_extras(self.request.extras) or b""

    def with_headers(self, headers: dict[str, str]) -> Draft:
        """The same job with more headers, if there is room for them."""
        return replace(self, request=with_headers(self.request, headers)) if headers else self

    @property
    def retry(self) -> RetryOverride | None:
        """Its own number of attempts and backoff, if it has some."""
        return self.request.retry


class Bound(Struct, frozen=True):
    """Arguments as they are sent, those that are known, and the values to come in the others."""

    sent: dict[str, object]
    known: dict[str, object]
    later: tuple[Later, ...]


def split_arguments(bound: Mapping[str, object]) -> Bound:
    """Replace what stands for values to come by placeholders."""
    sent: dict[str, object] = {}
    known: dict[str, object] = {}
    later: list[Later] = []
    for name, value in bound.items():
        before = len(later)
        sent[name] = _replace(value, later, in_list=False)
        if len(later) == before:
            known[name] = value
    return Bound(sent, known, tuple(later))


def _replace(value: Any, later: list[Later], *, in_list: bool) -> object:  # noqa: ANN401 - the user's
    if isinstance(value, Later):
        if value.placeholder.spreads and not in_list:
            problem = "the items of a result can stand only inside of a list: [*node.value]"
            raise OptionError("node", value, problem)
        later.append(value)
        return value.placeholder.to_ext()
    if isinstance(value, Placeholder):
        later.append(Later(value))
        return value.to_ext()
    if isinstance(value, dict):
        return {key: _replace(item, later, in_list=False) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace(item, later, in_list=True) for item in value]
    return value


def check_draft(request: Request) -> Request:
    """Refuse options that a job of a flow or chain cannot have."""
    place = request.place
    given = {
        "delay": bool(request.due),
        "job_id": request.job_id is not None,
        "unique": request.unique is not None,
        "expires": request.extras.deadline_ms is not None,
        "debounce, keep and max_waiting": place is not None and bool(place.rule),
    }
    for option, is_given in given.items():
        if is_given:
            raise OptionError(option, request.name, _REFUSED)
    return request


def gate_needs(requests: Iterable[Request]) -> GateNeeds | None:
    """What the gate of a queue must know of these jobs; None if none of them waits in lines."""
    placed = [each for each in requests if each.place is not None]
    if not placed:
        return None
    needs = needs_of(placed)
    weights = [
        (each.place.line, each.place.weight_text)
        for each in placed
        if each.place is not None and each.place.weight is not None
    ]
    return GateNeeds(needs.flags, needs.limits, weights)
