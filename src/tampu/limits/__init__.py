"""Flow control as values: priorities, keys and limits, and the lines that follow from them."""

from tampu.limits.model import Concurrency, Debounce, Limit, Priority, Rate, RateLimited

__all__ = ["Concurrency", "Debounce", "Limit", "Priority", "Rate", "RateLimited"]
