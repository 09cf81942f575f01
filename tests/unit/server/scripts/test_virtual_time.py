"""The time of a test, as the scripts see it."""

import re
from pathlib import Path

import tampu
from tampu.server.dialect import Dialect
from tampu.server.scripts.script import Script, set_prelude

LUA = Path(str(tampu.__file__)).parent / "server" / "lua"
PRELUDE = (LUA / "parts" / "virtual_time.lua").read_text("utf-8")
# What depends on time or sets how long a key lasts.
TIMED = re.compile(r"call\('(TIME|\w*EXPIRE\w*|PERSIST|P?TTL|P?SETEX|GETEX|XADD)'")


def test_the_prelude_knows_every_command_that_depends_on_time() -> None:
    known = set(re.findall(r"function commands\.(\w+)\(", PRELUDE))
    others = [path.read_text("utf-8") for path in LUA.rglob("*.lua") if path.stem != "virtual_time"]
    used = {command for text in others for command in TIMED.findall(text)}
    assert used <= known
    options = {option for text in others for option in re.findall(r"'(EX|PX|EXAT|PXAT)'", text)}
    assert options <= {"EX", "PX"}


def test_scripts_begin_with_the_prelude_after_their_flags_and_then_no_more() -> None:
    before = Script("lead")
    new, old = Dialect(version=(9, 1)), Dialect(version=(6, 2))
    plain = before.text(new).body
    set_prelude("parts/virtual_time")
    try:
        later = Script("lead")
        for script in (before, later):
            body = script.text(new).body.decode()
            assert body.startswith("#!lua flags=allow-oom\n" + PRELUDE)
            assert script.text(old).body.decode().startswith(PRELUDE)
    finally:
        set_prelude(None)
    assert before.text(new).body == later.text(new).body == plain
