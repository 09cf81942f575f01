"""The fence round redis-py: only one module depends on how it is built."""

import ast
from functools import cache
from pathlib import Path

import tampu
from tampu.server import redis_py

SOURCES = Path(str(tampu.__file__)).parent
FENCE = Path("server", "redis_py.py")
# Documented classes and functions: clients are made of them, and the route chooses by their class.
ALSO_ALLOWED = {
    Path("server", "client.py"): {
        "redis.asyncio",
        "redis.asyncio.cluster",
        "redis.asyncio.connection",
        "redis.asyncio.sentinel",
        "redis.credentials",
    },
    Path("server", "route.py"): {
        "redis.asyncio",
        "redis.asyncio.cluster",
        "redis.asyncio.sentinel",
        "redis.crc",
    },
}


@cache
def modules() -> list[tuple[Path, ast.Module]]:
    """Every module of the package, without the fence itself."""
    names = [path.relative_to(SOURCES) for path in SOURCES.rglob("*.py")]
    return [
        (name, ast.parse((SOURCES / name).read_text("utf-8"))) for name in names if name != FENCE
    ]


def imported(tree: ast.Module) -> set[str]:
    """The modules of redis-py that a module imports, without its exceptions."""
    found = {
        node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module is not None
    }
    found |= {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    return {name for name in found if name.split(".")[0] == "redis"} - {"redis.exceptions"}


def test_other_modules_use_the_exceptions_of_redis_py_only() -> None:
    found = {name: imported(tree) - ALSO_ALLOWED.get(name, set()) for name, tree in modules()}
    assert {name: names for name, names in found.items() if names} == {}


def test_other_modules_do_not_touch_private_parts_of_redis_py() -> None:
    private = {redis_py._WRITER, redis_py._NODES_MANAGER, "startup_nodes", "move_slot"}
    found = {
        (name, node.attr)
        for name, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in private and name.parts[0] == "server"
    }
    assert found == set()
