"""What the server itself spends on commands, by its own account."""

from typing import Any, Final

import redis

# As the sum over `INFO commandstats`, but for commands that a script runs: they are in the
# script's time already, and listed there once more.
_FIELD: Final = "eventloop_duration_cmd_sum"


def spent_s(admin: redis.Redis) -> float | None:
    """Seconds since it started; None if it does not tell, as Redis before 7.2.

    The time in which a blocked read waits is not in it, nor is work on sockets.
    """
    told: dict[str, Any] = admin.info("stats")
    return float(told[_FIELD]) / 1e6 if _FIELD in told else None
