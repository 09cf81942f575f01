"""`python -m benchmarks [SCENARIO]`: measure and print figures; `--keep` stores them."""

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
    busy,
    consume,
    dashboard,
    dispatch,
    envelope,
    fleet,
    flow,
    flows,
    history,
    idle,
    lane_add,
    lane_read,
    lateness,
    memory,
    outbox,
    produce,
    promote,
    result,
    retry,
    runners,
    scheduler,
    stream,
)
from benchmarks.bench import Bench, find_chasquimq
from benchmarks.figures import Figure
from tests.peers import PACKAGE
from tests.servers import BACKENDS, Backend, RunningServer

RESULTS: Final = Path(__file__).parent / "results"
PREFERRED: Final = ("redis8", "valkey9")  # ChasquiMQ runs on the first one only
PACKAGES: Final = ("tampu", "redis", "hiredis", "msgspec", "msgpack", "uvloop")
SCENARIOS: Final[dict[str, Callable[[Bench], Awaitable[list[Figure]]]]] = {
    "consume": consume.run,
    "runners": runners.run,
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
    "idle": idle.run,
    "fleet": fleet.run,
    "history": history.run,
    "flow": flow.run,
    "flows": flows.run,
    "busy": busy.run,
    "dashboard": dashboard.run,
    "stream": stream.run,
    "outbox": outbox.run,
}
WITHOUT_CHASQUIMQ: Final = frozenset(
    {
        "app",
        "busy",
        "dashboard",
        "envelope",
        "fleet",
        "flow",
        "flows",
        "history",
        "idle",
        "lane_add",
        "lane_read",
        "outbox",
        "runners",
        "scheduler",
        "stream",
    }
)


def main() -> None:
    """Run one scenario or all of them on one server."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("scenario", nargs="?", choices=SCENARIOS, help="default: all")
    parser.add_argument(
        "--backend",
        choices=[each.name for each in BACKENDS],
        help=f"default: the first of {', '.join(PREFERRED)} that is installed",
    )
    parser.add_argument("--keep", action="store_true", help="write the figures to results/")
    options = parser.parse_args()
    backend, binary = _choose_backend(parser, options.backend)
    for name in [options.scenario] if options.scenario else SCENARIOS:
        print(f"{name} on {backend.title}")
        with RunningServer(binary) as server:
            bench = Bench(server, None if name in WITHOUT_CHASQUIMQ else find_chasquimq(server))
            figures = uvloop.run(_measure(name, bench))
        print(*figures, sep="\n", flush=True)
        if options.keep:
            _keep(name, backend, figures, with_chasquimq=bench.chasquimq is not None)


def _choose_backend(parser: argparse.ArgumentParser, name: str | None) -> tuple[Backend, Path]:
    by_name = {each.name: each for each in BACKENDS}
    for each in [name] if name else PREFERRED:
        if (binary := by_name[each].find()) is not None:
            return by_name[each], binary
    return parser.error(f"{name or ' and '.join(PREFERRED)}: not installed on this machine")


async def _measure(name: str, bench: Bench) -> list[Figure]:
    return await SCENARIOS[name](bench)


def _keep(name: str, backend: Backend, figures: list[Figure], *, with_chasquimq: bool) -> None:
    """Write the figures of a scenario, and the versions they were measured with."""
    RESULTS.mkdir(exist_ok=True)
    kept = {
        "scenario": name,
        "server": backend.title,
        "python": platform.python_version(),
        "packages": {package: version(package) for package in PACKAGES},
        "peer": PACKAGE if with_chasquimq else None,
        "figures": [each.as_json() for each in figures],
    }
    path = RESULTS / f"{name}-{backend.name}.json"
    path.write_text(json.dumps(kept, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
