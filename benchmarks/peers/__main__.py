"""`python -m benchmarks.peers [PEER ...]`: compare, print the table, and write results/peers.*."""

import argparse
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from benchmarks.peers.chart import as_svg
from benchmarks.peers.home import Home, Unavailable, find_home
from benchmarks.peers.measure import measured
from benchmarks.peers.pins import PINS, TAMPU, Pin
from benchmarks.peers.score import Cell, Row, Scenario, failed, joined
from benchmarks.peers.table import as_markdown, as_text, shown
from benchmarks.sample import PAYLOAD_BYTES
from tests.servers import BACKENDS, Backend

RESULTS: Final = Path(__file__).resolve().parents[1] / "results"
BACKEND: Final = "redis8"  # the only one that all of them can use


@dataclass(frozen=True, slots=True)
class Result:
    """A peer's row, what was installed for it, and how busy the machine was."""

    row: Row
    packages: dict[str, str]
    load: float

    def joined(self, again: "Result") -> "Result":
        """With the rounds of another pass."""
        row = replace(self.row, cells=joined(self.row.cells, again.row.cells))
        return replace(self, row=row, load=max(self.load, again.load))

    def kept(self) -> dict[str, object]:
        """As it is written to results/."""
        figures = {each.name.lower(): _figure(cell) for each, cell in self.row.cells.items()}
        return {
            "name": self.row.name,
            "version": self.row.version,
            "way": self.row.way,
            "load": round(self.load, 2),
            "figures": figures,
            "packages": self.packages,
        }


def main() -> None:
    """Compare all peers, or those that are named, with tampu."""
    names = [pin.name for pin in PINS if pin is not TAMPU]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("peer", nargs="*", help=f"of {', '.join(names)}; all, if left out")
    parser.add_argument("--backend", choices=[each.name for each in BACKENDS], default=BACKEND)
    parser.add_argument(
        "--passes", type=int, default=1, help="go through all so often: for a busy machine"
    )
    options = parser.parse_args()
    if unknown := set(options.peer) - set(names):
        parser.error(f"no such peer: {', '.join(sorted(unknown))}")
    backend = next(each for each in BACKENDS if each.name == options.backend)
    binary = backend.find()
    if binary is None:
        parser.error(f"{backend.name}: not on this machine")
    chosen = [pin for pin in PINS if pin is TAMPU or not options.peer or pin.name in options.peer]
    results = [_result(pin, binary) for pin in chosen]
    for _ in range(options.passes - 1):
        results = [
            each.joined(_result(pin, binary)) for pin, each in zip(chosen, results, strict=True)
        ]
    print(f"\n{as_text([each.row for each in results])}")
    if len(chosen) == len(PINS):
        _keep(results, backend)
    else:
        print("results/ is as it was: not all peers were run")


def _result(pin: Pin, binary: Path) -> Result:
    print(pin.title, flush=True)
    try:
        home = find_home(pin)
        versions = home.versions()
    except Unavailable as error:
        print(f"  {error}")
        return Result(Row(pin.name, pin.title, "", pin.way, failed(str(error))), {}, _load())
    cells = measured(binary, home)
    for scenario, cell in cells.items():
        print(f"  {_line(scenario, cell)}", flush=True)
    version = versions[_package(home)]
    return Result(Row(pin.name, pin.title, version, pin.way, cells), versions, _load())


def _load() -> float:
    """How many processes wanted to run, the mean of a minute."""
    return os.getloadavg()[0]


def _package(home: Home) -> str:
    """The name that a peer is installed by."""
    first = home.pin.packages[0] if home.pin.packages else home.pin.name
    return first.partition("@" if home.pin.node else "==")[0].partition("[")[0]


def _line(scenario: Scenario, cell: Cell) -> str:
    if cell.value is None:
        return f"{scenario.title}: {cell.why}"
    return f"{scenario.title}: {shown(cell.value)}{scenario.unit.value} ({cell.of})"


def _keep(results: Sequence[Result], backend: Backend) -> None:
    """Write the figures, the table and the picture."""
    rows = [each.row for each in results]
    loads = [each.load for each in results]
    date = datetime.now(UTC).date().isoformat()
    server = backend.title.partition(" (")[0]
    about = (
        f"{date}, {server}, Python {platform.python_version()}, {os.cpu_count()} cores, "
        f"load {min(loads):.1f} to {max(loads):.1f}, jobs of {PAYLOAD_BYTES} bytes."
    )
    kept = {
        "date": date,
        "server": server,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "peers": [each.kept() for each in results],
    }
    RESULTS.mkdir(exist_ok=True)
    _write("peers.json", json.dumps(kept, indent=2, ensure_ascii=False) + "\n")
    _write("peers.md", as_markdown(rows, about=about))
    _write("peers.svg", as_svg(rows, title=f"tampu and its peers, {server}, {date}; log scale"))


def _figure(cell: Cell) -> dict[str, object]:
    if cell.value is None:
        return {"why": cell.why}
    rounds = [float(f"{each:.4g}") for each in cell.rounds]
    return {"value": float(f"{cell.value:.4g}"), "rounds": rounds, "of": cell.of}


def _write(name: str, text: str) -> None:
    path = RESULTS / name
    path.write_text(text, "utf-8")
    print(f"written: {path.relative_to(RESULTS.parents[1])}")


if __name__ == "__main__":
    main()
