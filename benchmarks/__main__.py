"""`python -m benchmarks [SCENARIO]`: measure, print ratios, and keep them with `--keep`."""

import argparse
import json
import platform
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from pathlib import Path
from typing import Final

import uvloop

from benchmarks import (
    app,
    consume,
    dispatch,
    envelope,
    lane_add,
    lane_read,
    lateness,
    memory,
    produce,
    promote,
    result,
    retry,
    scheduler,
)
from benchmarks.bench import Bench
from benchmarks.figure import Measured
from benchmarks.peer import find_peer
from tests.peers import PACKAGE
from tests.servers import BACKENDS, Backend, RunningServer

RESULTS: Final = Path(__file__).parent / "results"
PREFERRED: Final = ("redis8", "valkey9")  # the first is the only one that the rival can use
PACKAGES: Final = ("tampu", "redis", "hiredis", "msgspec", "msgpack", "uvloop")
SCENARIOS: Final[dict[str, Callable[[Bench], Awaitable[list[Measured]]]]] = {
    "consume": consume.run,
    "app": app.run,
    "produce": produce.run,
    "dispatch": dispatch.run,
    "result": result.run,
    "retry": retry.run,
    "lateness": lateness.run,
    "promote": promote.run,
    "memory": memory.run,
    "envelope": envelope.run,
    "lane_add": lane_add.run,
    "lane_read": lane_read.run,
    "scheduler": scheduler.run,
}
WITHOUT_PEER: Final = frozenset({"app", "envelope", "lane_add", "lane_read", "scheduler"})


def main() -> None:
    """Run one scenario or all of them on one server."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("scenario", nargs="?", choices=SCENARIOS, help="all, if left out")
    parser.add_argument(
        "--backend",
        choices=[each.name for each in BACKENDS],
        help=f"if left out: the first of {', '.join(PREFERRED)} that is there",
    )
    parser.add_argument("--keep", action="store_true", help="write the figures to results/")
    options = parser.parse_args()
    backend, binary = _chosen(parser, options.backend)
    for name in [options.scenario] if options.scenario else SCENARIOS:
        print(f"{name} on {backend.title}")
        with RunningServer(binary) as server:
            bench = Bench(server, None if name in WITHOUT_PEER else find_peer(server))
            measured = uvloop.run(_measured(name, bench))
        print(*measured, sep="\n", flush=True)
        if options.keep:
            _keep(name, backend, measured, with_peer=bench.peer is not None)


def _chosen(parser: argparse.ArgumentParser, name: str | None) -> tuple[Backend, Path]:
    by_name = {each.name: each for each in BACKENDS}
    for each in [name] if name else PREFERRED:
        if (binary := by_name[each].find()) is not None:
            return by_name[each], binary
    return parser.error(f"{name or ' and '.join(PREFERRED)}: not on this machine")


async def _measured(name: str, bench: Bench) -> list[Measured]:
    return await SCENARIOS[name](bench)


def _keep(name: str, backend: Backend, measured: list[Measured], *, with_peer: bool) -> None:
    """Write a scenario's figures with what they were measured on."""
    RESULTS.mkdir(exist_ok=True)
    kept = {
        "scenario": name,
        "server": backend.title,
        "python": platform.python_version(),
        "packages": {package: version(package) for package in PACKAGES},
        "peer": PACKAGE if with_peer else None,
        "figures": [each.kept() for each in measured],
    }
    path = RESULTS / f"{name}-{backend.name}.json"
    path.write_text(json.dumps(kept, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
