"""How a job wants to be retried, as it stands in its envelope."""

from enum import Enum
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

Uint32 = Annotated[int, Meta(ge=0, lt=2**32)]
Uint64 = Annotated[int, Meta(ge=0)]  # msgspec itself refuses what is above 2**64 - 1


class BackoffKind(Enum):
    """How the wait grows from one attempt to the next."""

    FIXED = "fixed"
    EXPONENTIAL = "exponential"


class WireBackoff(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """The wait between attempts, in the five slots that peers always write.

    `kind` is kept as it was read, so that a kind of a later peer survives a retry by us.
    """

    kind: str
    delay_ms: Uint64
    max_delay_ms: Uint64 | None
    multiplier: float | None
    jitter_ms: Uint64 | None

    def __post_init__(self) -> None:
        if isinstance(self.multiplier, int):
            force_setattr(self, "multiplier", float(self.multiplier))  # peers want a float64

    @property
    def effective_kind(self) -> BackoffKind:
        """What to do: peers treat every kind but "fixed" as exponential."""
        return BackoffKind.FIXED if self.kind == "fixed" else BackoffKind.EXPONENTIAL


class RetryOverride(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """What a job says about its own retries; None leaves it to the worker."""

    max_attempts: Uint32 | None
    backoff: WireBackoff | None
