"""Checks that every Lua script has a complete head, and a typed call of the same name."""

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tampu.server.scripts import (
    adding,
    alerts,
    control,
    delayed,
    flows,
    gate,
    history,
    outbox,
    output,
    scheduler,
    schedules,
    settling,
    virtual_time,
    workers,
)

FOLDER = Path("src/tampu/server/lua")
PARTS = ("-- KEYS  ", "-- ARGV  ", "-- reply ", "-- Atomic because ")
MODULES = (
    adding,
    alerts,
    control,
    delayed,
    flows,
    gate,
    history,
    outbox,
    output,
    scheduler,
    schedules,
    settling,
    virtual_time,
    workers,
)
KEY = re.compile(r"KEYS\[(\d+)\]")


def find_problems(path: Path) -> Iterator[str]:
    """What is missing in the head of a script, or in the call for it."""
    name, text = path.stem, path.read_text("utf-8")
    lines = text.splitlines()
    if lines[0].startswith("#!"):
        lines.pop(0)
    if not lines[0].startswith(f"-- {name}: "):
        yield f"the head must begin with '-- {name}: what it does'"
    head = "\n".join(line for line in lines if line.startswith("--"))
    for part in PARTS:
        if part not in head:
            yield f"the head has no line '{part.strip()}'"
    if not any(inspect.isfunction(getattr(module, name, None)) for module in MODULES):
        yield f"no module in server/scripts defines {name}()"
    keys_head = head.partition(PARTS[0])[2].partition(PARTS[1])[0]
    for number in sorted(set(map(int, KEY.findall(text)))):
        if not re.search(rf"\b{number} ", keys_head):
            yield f"the head does not describe key {number}"


def main() -> int:
    """Print the problems."""
    paths = sorted(FOLDER.glob("*.lua"))
    found = [f"{path}: {problem}" for path in paths for problem in find_problems(path)]
    print("\n".join(found) or f"lua heads: {len(paths)} scripts are ok")
    return int(bool(found) or not paths)


if __name__ == "__main__":
    sys.exit(main())
