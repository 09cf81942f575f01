"""How a job is to be retried, from chasquimq's words to tampu's."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from tampu.backoff import DEFAULT_BACKOFF, Backoff
from tampu.compat.adapter.dicts import count_of, dict_of, needed, needed_text, number_of
from tampu.compat.adapter.repeat import BackoffSpec
from tampu.wire.envelope import BackoffKind, WireBackoff

BackoffLike: TypeAlias = int | BackoffSpec | dict[str, Any]

_KINDS = frozenset(kind.value for kind in BackoffKind)


@dataclass(frozen=True, slots=True)
class OpenBackoff(Backoff):
    """A wait that travels as it was given: what it leaves open is filled in by the worker."""

    wire: WireBackoff

    def to_wire(self) -> WireBackoff:
        """Nothing is filled in."""
        return self.wire


@dataclass(frozen=True, slots=True)
class Retrying:
    """How often, and after which waits; None leaves it to the worker."""

    attempts: int | None = None
    backoff: Backoff | None = None


def retrying_of(attempts: int | None, backoff: BackoffLike | None) -> Retrying:
    """What `Queue.add` was given."""
    told: dict[str, Any] = {"max_attempts": attempts}
    if backoff is not None:
        told["backoff"] = _backoff_dict(backoff)
    return retrying_in(told)


def retrying_in(given: Mapping[str, Any]) -> Retrying:
    """What a dict says under `max_attempts` and `backoff`."""
    backoff = dict_of(given, "retry", "backoff")
    attempts = count_of(given, "retry", "max_attempts", bits=32)
    return Retrying(attempts, None if backoff is None else _open_backoff(backoff))


def _backoff_dict(backoff: BackoffLike) -> dict[str, Any]:
    given: object = backoff
    match given:
        case BackoffSpec():
            return given.to_dict()
        case dict():
            return given
        case bool():
            raise TypeError("backoff must be int / BackoffSpec / dict; got bool")
        case int():
            return {"kind": "fixed", "delay_ms": given}
        case _:
            got = type(given).__name__
            raise TypeError(f"backoff must be int (ms) / BackoffSpec / dict; got {got}")


def _open_backoff(given: Mapping[str, Any]) -> OpenBackoff:
    kind = needed_text(given, "backoff", "kind")
    if kind not in _KINDS:
        raise ValueError(f"unknown backoff kind \"{kind}\"; expected 'fixed' or 'exponential'")
    needed(given, "backoff", "delay_ms")
    wire = WireBackoff(
        kind,
        count_of(given, "backoff", "delay_ms") or 0,
        count_of(given, "backoff", "max_delay_ms"),
        number_of(given, "backoff", "multiplier"),
        count_of(given, "backoff", "jitter_ms"),
    )
    meant = DEFAULT_BACKOFF.overridden(wire)
    return OpenBackoff(
        meant.kind, meant.delay_ms, meant.max_ms, meant.multiplier, meant.jitter_ms, wire
    )
