"""Jobs with all that flow control knows, and what their handlers count while they run."""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, Final

import redis

from tampu import Breaker, Debounce, NewJob, Unique
from tampu.limits import Concurrency, Limit, Rate
from tampu.limits.model import AnyLimit
from tampu.wire.keys import QueueKeys

SHARED: Final = "shared"
_SHARED_MOST: Final = 4
_LEVELS: Final = (None, None, 0, 9)
CHANGED: Final = {"n2(t)": 2, "n3()": 6, SHARED: _SHARED_MOST}  # limits that are set by hand too
REPLACED: Final = ("n10", "n11", "n12")  # jobs of these names may be dropped for newer ones
RULED: Final = ("quiet", "latest", "once", "late", "drop_old", "drop_new", "wait", "fragile")
BATCHED: Final = "batched"
NAMES: Final = (
    "ordered",
    *(f"n{kind}" for kind in range(15)),
    *RULED,
)  # of all jobs that run alone


def declare_shared(admin: redis.Redis, keys: QueueKeys) -> None:
    """Declare the limit that jobs of several names share."""
    admin.hset(keys.gate.decode() + ":limits", SHARED, f"{_SHARED_MOST} 0 0 1 0")


class FlowJobs:
    """Makes jobs at random; their data name what they count in, and how much that may be."""

    def __init__(self, rng: Random, *, tenants: int = 30) -> None:
        self._rng, self._tenants = rng, tenants
        self.of_key = Counter[str]()  # how many ordered jobs each key has
        self._kinds: list[Callable[[int], dict[str, Any]]] = [
            lambda _: {},
            lambda t: {"key": f"k{t}", "weight": 1 + t % 3},
            lambda _: {"limits": [Concurrency(2, by="t")]},
            lambda _: {"limits": [Concurrency(2, by="t"), Concurrency(6)]},
            lambda t: {
                "key": f"k{t}",
                "limits": [Concurrency(2, by="t"), Concurrency(3, by="g"), Concurrency(6)],
            },
            lambda _: {"limits": [Rate("200/s", by="g", burst=5)]},
            lambda _: {
                "limits": [
                    Rate("100/s", by="t", burst=10),
                    Concurrency(3, by="t"),
                    Concurrency(3, by="g"),
                ]
            },
            lambda _: {"limits": [Rate("300/s", strict=True)]},
            lambda _: {"limits": [Limit(SHARED), Concurrency(3, by="g")]},
            lambda _: {"limits": [Limit(SHARED)], "expires": 600},
            lambda t: {"key": f"k{t}", "keep": "latest", "limits": [Concurrency(1, by="t")]},
            lambda t: {"key": f"k{t}", "max_waiting": 2, "on_full": "drop_old"},
            lambda _: {"debounce": Debounce("50ms", max="200ms", by="t")},
            lambda t: {"unique": Unique(key=f"u{t}"), "limits": [Concurrency(3, by="g")]},
            lambda _: {"breaker": Breaker(failures=0.5, of=4, cooldown="50ms")},
        ]

    def make(self) -> NewJob:
        """A job of any kind."""
        tenant = self._rng.randrange(self._tenants) if self._rng.random() < 0.7 else 0
        kind = self._rng.randrange(len(self._kinds) + 1)
        data: dict[str, Any] = {"t": tenant, "g": tenant % 3}
        if kind == len(self._kinds):
            key = f"o{tenant % 10}"
            self.of_key[key] += 1
            data |= {"seq": self.of_key[key], "counts": {f">{key}": 1}}
            return NewJob("ordered", data, key=key, ordered=True)
        options = self._kinds[kind](tenant)
        data["counts"] = dict(_counted(f"n{kind}", limit, data) for limit in _of(options))
        if unique := options.get("unique"):
            data["counts"][f"unique {unique.key}"] = 1
        priority = self._rng.choice(_LEVELS)
        return NewJob(f"n{kind}", data, priority=priority, **options)


def _of(options: dict[str, Any]) -> list[AnyLimit]:
    return [limit for limit in options.get("limits", ()) if not isinstance(limit, Rate)]


def _counted(name: str, limit: AnyLimit, data: dict[str, Any]) -> tuple[str, int]:
    if isinstance(limit, Limit):
        return SHARED, _SHARED_MOST
    assert isinstance(limit, Concurrency)
    by = limit.by or ""
    assert isinstance(by, str)
    return f"{name}({by}):{data.get(by)}", limit.most
