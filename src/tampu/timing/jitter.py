"""Stable jitter: spreads the fires of many schedules, the same way in every process."""

from hashlib import blake2b


def offset_ms(key: str, at_ms: int, spread_ms: int) -> int:
    """From 0 up to the spread, the spread itself left out.

    Drawn from the schedule's key and the instant, so whoever computes it, and however often,
    gets the same. Keeping it below the gap to the next instant is the caller's business.
    """
    if spread_ms <= 0:
        return 0
    digest = blake2b(f"{at_ms}:{key}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) % spread_ms
