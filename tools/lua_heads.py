"""Each Lua file has a head that says what it is, and a typed call of the same name."""

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tampu.server.scripts import (
    adding,
    dead,
    delayed,
    scheduler,
    schedules,
    settling,
    workers,
)

FOLDER = Path("src/tampu/server/lua")
PARTS = ("-- KEYS  ", "-- ARGV  ", "-- reply ", "-- Atomic because ")
MODULES = (adding, dead, delayed, scheduler, schedules, settling, workers)
KEY = re.compile(r"KEYS\[(\d+)\]")


def complaints(path: Path) -> Iterator[str]:
    """What one script's head or its typed call lacks."""
    name, text = path.stem, path.read_text("utf-8")
    lines = text.splitlines()
    if lines[0].startswith("#!"):
        lines.pop(0)
    if not lines[0].startswith(f"-- {name}: "):
        yield f"its head does not begin with '-- {name}: what it does'"
    head = "\n".join(line for line in lines if line.startswith("--"))
    for part in PARTS:
        if part not in head:
            yield f"its head lacks '{part.strip()}'"
    if not any(inspect.iscoroutinefunction(getattr(module, name, None)) for module in MODULES):
        yield f"no module of scripts has a call {name}()"
    keys_head = head.partition(PARTS[0])[2].partition(PARTS[1])[0]
    for number in sorted(set(map(int, KEY.findall(text)))):
        if not re.search(rf"\b{number} ", keys_head):
            yield f"its head does not name key {number}"


def main() -> int:
    """Say which heads are wanting."""
    paths = sorted(FOLDER.glob("*.lua"))
    found = [f"{path}: {problem}" for path in paths for problem in complaints(path)]
    print("\n".join(found) or f"lua heads: {len(paths)} scripts in order")
    return int(bool(found) or not paths)


if __name__ == "__main__":
    sys.exit(main())
