"""Flow control as values: priorities, keys and limits, and the lines that follow from them."""

from tampu.limits.model import (
    Breaker,
    Concurrency,
    Debounce,
    Limit,
    Priority,
    Rate,
    RateLimited,
)

__all__ = ["Breaker", "Concurrency", "Debounce", "Limit", "Priority", "Rate", "RateLimited"]
