"""`python -m benchmarks [SCENARIO]`: measure, print ratios, and keep them with `--keep`."""

import argparse
import json
import platform
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from pathlib import Path
from typing import Final

import uvloop

from benchmarks import add, consume, envelope
from benchmarks.figure import Figure
from tests.servers import BACKENDS, Backend, RunningServer

RESULTS: Final = Path(__file__).parent / "results"
SCENARIOS: Final[dict[str, Callable[[RunningServer], Awaitable[list[Figure]]]]] = {
    "envelope": envelope.run,
    "add": add.run,
    "consume": consume.run,
}


def main() -> None:
    """Run one scenario or all of them on one server."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("scenario", nargs="?", choices=SCENARIOS, help="all, if left out")
    parser.add_argument("--backend", default="valkey9", choices=[b.name for b in BACKENDS])
    parser.add_argument("--keep", action="store_true", help="write the figures to results/")
    options = parser.parse_args()
    backend = next(b for b in BACKENDS if b.name == options.backend)
    binary = backend.find()
    if binary is None:
        parser.error(f"{backend.title} is not on this machine")
    for name in [options.scenario] if options.scenario else SCENARIOS:
        with RunningServer(binary) as server:
            figures = uvloop.run(_measured(name, server))
        print(f"{name} on {backend.title}", *figures, sep="\n  ")
        if options.keep:
            _keep(name, backend, figures)


async def _measured(name: str, server: RunningServer) -> list[Figure]:
    return await SCENARIOS[name](server)


def _keep(name: str, backend: Backend, figures: list[Figure]) -> None:
    """Write a scenario's figures with what they were measured on."""
    RESULTS.mkdir(exist_ok=True)
    kept = {
        "scenario": name,
        "server": backend.title,
        "python": platform.python_version(),
        "packages": {p: version(p) for p in ("redis", "hiredis", "msgspec", "msgpack", "uvloop")},
        "figures": [
            {
                "what": figure.what,
                "ratio": round(figure.ratio, 2),
                "floor": figure.floor,
                "ours_per_s": round(figure.ours_per_s),
                "rival": figure.rival,
                "rival_per_s": round(figure.rival_per_s),
            }
            for figure in figures
        ],
    }
    path = RESULTS / f"{name}-{backend.name}.json"
    path.write_text(json.dumps(kept, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
