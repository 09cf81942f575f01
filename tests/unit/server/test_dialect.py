"""The dialect that INFO and COMMAND INFO describe."""

import re
from pathlib import Path

import pytest

import tampu
from tampu.errors import ServerTooOld
from tampu.server.dialect import USED, Dialect, Product, parse_dialect

SERVER = "redis://h:6379/0"
KNOWN, UNKNOWN = [b"entry"], None


def info(**fields: str) -> bytes:
    lines = ["# Server", *(f"{name}:{value}" for name, value in fields.items()), ""]
    return "\r\n".join(lines).encode()


def test_redis_6_2_has_no_newer_commands() -> None:
    dialect = parse_dialect(info(redis_version="6.2.14"), [KNOWN, UNKNOWN, UNKNOWN], SERVER)
    assert dialect == Dialect(product=Product.REDIS, version=(6, 2, 14))
    assert not dialect.script_flags
    assert not dialect.read_and_claim
    assert not dialect.add_once
    assert str(dialect) == "Redis 6.2.14"


def test_redis_8_10_has_all_newer_commands() -> None:
    dialect = parse_dialect(info(redis_version="8.10.2"), [KNOWN, KNOWN, KNOWN], SERVER)
    assert dialect.ack_and_delete
    assert dialect.wait_for_fsync
    assert dialect.script_flags
    assert dialect.read_and_claim
    assert dialect.add_once


@pytest.mark.parametrize(
    ("version", "claim", "once"),
    [("8.2.1", False, False), ("8.4.0", True, False), ("8.6.0", True, True)],
)
def test_newer_arguments_depend_on_the_version(version: str, claim: bool, once: bool) -> None:  # noqa: FBT001
    dialect = parse_dialect(info(redis_version=version), [KNOWN, KNOWN, KNOWN], SERVER)
    assert (dialect.read_and_claim, dialect.add_once) == (claim, once)


def test_valkey_is_recognised_by_its_own_version_field() -> None:
    fields = info(redis_version="7.2.4", server_name="valkey", valkey_version="9.1.2")
    dialect = parse_dialect(fields, [KNOWN, UNKNOWN, KNOWN], SERVER)
    assert dialect.product is Product.VALKEY
    assert dialect.version == (9, 1, 2)
    assert dialect.wait_for_fsync
    assert not dialect.add_once
    assert not dialect.read_and_claim


def test_the_version_of_a_release_candidate_is_parsed() -> None:
    fields = info(redis_version="7.2.4", valkey_version="9.0.0-rc1")
    assert parse_dialect(fields, [KNOWN, UNKNOWN, KNOWN], SERVER).version == (9, 0, 0)


def test_a_server_without_the_required_command_is_too_old() -> None:
    with pytest.raises(ServerTooOld, match=r"5\.0\.7.*Redis 6\.2 or newer"):
        parse_dialect(info(redis_version="5.0.7"), [UNKNOWN, UNKNOWN, UNKNOWN], SERVER)


def test_the_listed_commands_are_the_ones_that_are_sent() -> None:
    sources = Path(str(tampu.__file__)).parent
    lua = "".join(path.read_text("utf-8") for path in sources.rglob("*.lua"))
    python = "".join(path.read_text("utf-8") for path in sources.joinpath("server").rglob("*.py"))
    sent = set(re.findall(r"(?:call|ask_all|send_all|changed_in)\('([A-Z]+)'", lua))
    sent |= set(re.findall(r"""(?:call|pack|pack_after)\(\s*\(?b?"([A-Z]{3,})\"""", python))
    sent |= set(re.findall(r"""\(\s*b?"(SCAN|X[A-Z]+|Z[A-Z]+)\",""", python))
    by_need = {
        "ASKING",
        "CONFIG",
        "WAITAOF",
        "XACKDEL",
        "XAUTOCLAIM",
    }  # sent only if the server has them
    of_the_test_kit = {"DBSIZE", "FLUSHDB", "INCR"}
    assert sent - by_need - of_the_test_kit == set(USED)
