"""What the server itself spent on a run, by its own account."""

import re
from pathlib import Path
from typing import Any, Final

import redis

import tampu.server

_LUA: Final = Path(tampu.server.__file__).parent / "lua"
_CALL: Final = re.compile(r"redis\.p?call\('(\w+)'")


def forget(admin: redis.Redis) -> None:
    """Start the account anew."""
    admin.config_resetstat()


def spent_s(admin: redis.Redis) -> float:
    """Seconds spent on commands since then, those that wait for no client.

    A script's time holds that of the commands it runs, which are listed once more by themselves:
    those are left out. Reading and writing sockets is not in it.
    """
    stats: dict[str, Any] = admin.info("commandstats")
    inside = _inside_scripts()
    return sum(
        float(each["usec"]) / 1e6
        for name, each in stats.items()
        if name.removeprefix("cmdstat_").partition("|")[0] not in inside
    )


def _inside_scripts() -> frozenset[str]:
    texts = (path.read_text("utf-8") for path in _LUA.glob("*.lua"))
    return frozenset(name.lower() for text in texts for name in _CALL.findall(text))
