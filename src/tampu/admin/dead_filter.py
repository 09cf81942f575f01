"""Which dead letters are meant: by name, reason, error and age."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from msgspec import Struct

from tampu.util.clock import Duration, to_ms
from tampu.wire.dead import BuryReason, DeadEntry


class StoredLetter(Struct, frozen=True):
    """A dead letter and its id."""

    dead_id: bytes
    entry: DeadEntry


class LetterOptions(TypedDict, total=False):
    """Filters for dead letters, as keywords; `LetterSettings` explains them."""

    name: str | None
    reason: BuryReason | str | None
    error: str | None
    newer_than: Duration | None
    older_than: Duration | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterSettings:
    """Filters for dead letters, validated. None matches all; the server's clock counts."""

    name: str | None = None  # of the job
    reason: BuryReason | str | None = None
    error: str | None = None  # a part of the error's type or message
    newer_than: Duration | None = None  # buried less long ago
    older_than: Duration | None = None  # buried longer ago

    def __post_init__(self) -> None:
        for option in ("newer_than", "older_than"):
            if getattr(self, option) is not None:
                to_ms(option, getattr(self, option))

    @property
    def asks_for_time(self) -> bool:
        """Whether it depends on when a job was buried."""
        return self.newer_than is not None or self.older_than is not None

    def at(self, now_ms: int) -> LetterFilter:
        """The filter, by the server's clock."""
        newer, older = self.newer_than, self.older_than
        return LetterFilter(
            name=self.name,
            reason=None if self.reason is None else _reason_text(self.reason),
            error=self.error,
            after_ms=None if newer is None else now_ms - to_ms("newer_than", newer),
            before_ms=None if older is None else now_ms - to_ms("older_than", older),
        )


class LetterFilter(Struct, frozen=True, kw_only=True):
    """Selects dead letters; None matches all."""

    name: str | None = None
    reason: str | None = None
    error: str | None = None
    after_ms: int | None = None
    before_ms: int | None = None

    def matches(self, stored: StoredLetter) -> bool:
        """Whether a letter is selected."""
        letter, at_ms = stored.entry, stamp_ms(stored.dead_id)
        if self.name is not None and letter.name != self.name:
            return False
        if self.reason is not None and _reason_text(letter.reason) != self.reason:
            return False
        if self.error is not None and self.error.lower() not in _error_text(letter).lower():
            return False
        if self.after_ms is not None and at_ms < self.after_ms:
            return False
        return self.before_ms is None or at_ms < self.before_ms


def stamp_ms(dead_id: bytes) -> int:
    """When a letter was written, by the server's clock."""
    return int(dead_id.partition(b"-")[0])


def _error_text(letter: DeadEntry) -> str:
    """What a letter says about its error: type, message, or the detail of the reason."""
    failure = letter.failure
    texts = (letter.detail,) if failure is None else (failure.error_type, failure.message)
    return ": ".join(text for text in texts if text)


def _reason_text(reason: BuryReason | str) -> str:
    return reason.value if isinstance(reason, BuryReason) else reason
