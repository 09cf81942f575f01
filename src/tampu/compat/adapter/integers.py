"""Numbers that callers give as options, and options that tampu has no use for."""

import logging

from tampu.compat.adapter.kinds import whole

logger = logging.getLogger(__name__)


def unsigned(name: str, given: int | None) -> int | None:
    """A whole number from 0, or None."""
    if given is not None and whole(name, given) < 0:
        raise OverflowError("out of range integral type conversion attempted")
    return given


def non_negative(name: str, given: int | None) -> int | None:
    """As `unsigned`, for those that chasquimq refuses with another error."""
    if given is not None and whole(name, given) < 0:
        raise RuntimeError(f"{name} must be non-negative; got {given}")
    return given


def positive(name: str, given: int | None) -> int | None:
    """A whole number from 1, or None."""
    if given is not None and whole(name, given) <= 0:
        raise RuntimeError(f"{name} must be positive; got {given}")
    return given


def at_most(limit: object) -> int:
    """How many a caller wants to see, from 0."""
    count = whole("limit", limit)
    unsigned("limit", count)
    return count


def unused(owner: str, **options: int | None) -> None:
    """Tell the log which options were given that tampu has nothing to set by."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        facts = {"owner": owner, "options": ", ".join(given)}
        logger.info("options without effect: tampu sees to it itself", extra=facts)
