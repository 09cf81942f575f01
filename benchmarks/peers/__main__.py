"""`python -m benchmarks.peers [PEER ...]`: compare peers, print a table, write results/peers.*."""

import argparse
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from benchmarks.peers.catalog import PEERS, TAMPU, Peer
from benchmarks.peers.chart import as_svg
from benchmarks.peers.comparison import Cell, Row, Scenario, failed_cells, join_passes
from benchmarks.peers.environment import Unavailable, prepare_environment
from benchmarks.peers.measure import measure
from benchmarks.peers.table import as_markdown, as_text, format_figure
from benchmarks.workload import PAYLOAD_BYTES
from tests.servers import BACKENDS, Backend

RESULTS: Final = Path(__file__).resolve().parents[1] / "results"
BACKEND: Final = "redis8"  # the only one that all peers can use


@dataclass(frozen=True, slots=True)
class PeerResult:
    """A peer's row, its installed packages, and the load of the machine."""

    row: Row
    packages: dict[str, str]
    load: float

    def join(self, other: "PeerResult") -> "PeerResult":
        """This result with the rounds of another pass added."""
        row = replace(self.row, cells=join_passes(self.row.cells, other.row.cells))
        return replace(self, row=row, load=max(self.load, other.load))

    def as_json(self) -> dict[str, object]:
        """The result as it is written to results/."""
        figures = {each.name.lower(): _cell_json(cell) for each, cell in self.row.cells.items()}
        return {
            "name": self.row.name,
            "version": self.row.version,
            "way": self.row.way,
            "load": round(self.load, 2),
            "figures": figures,
            "packages": self.packages,
        }


def main() -> None:
    """Compare tampu with all peers, or with those that were named."""
    names = [peer.name for peer in PEERS if peer is not TAMPU]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("peer", nargs="*", help=f"{', '.join(names)}; default: all")
    parser.add_argument("--backend", choices=[each.name for each in BACKENDS], default=BACKEND)
    parser.add_argument("--passes", type=int, default=1, help="measure everything this many times")
    options = parser.parse_args()
    if unknown := set(options.peer) - set(names):
        parser.error(f"unknown peer: {', '.join(sorted(unknown))}")
    backend = next(each for each in BACKENDS if each.name == options.backend)
    binary = backend.find()
    if binary is None:
        parser.error(f"{backend.name}: not installed on this machine")
    chosen = [
        peer for peer in PEERS if peer is TAMPU or not options.peer or peer.name in options.peer
    ]
    results = [_measure_peer(peer, binary) for peer in chosen]
    for _ in range(options.passes - 1):
        results = [
            result.join(_measure_peer(peer, binary))
            for peer, result in zip(chosen, results, strict=True)
        ]
    print(f"\n{as_text([each.row for each in results])}")
    if len(chosen) == len(PEERS):
        _keep(results, backend)
    else:
        print("results/ is unchanged, because not all peers were measured")


def _measure_peer(peer: Peer, binary: Path) -> PeerResult:
    print(peer.title, flush=True)
    try:
        environment = prepare_environment(peer)
        packages = environment.versions()
    except Unavailable as error:
        print(f"  {error}")
        row = Row(peer.name, peer.title, "", peer.way, failed_cells(str(error)))
        return PeerResult(row, {}, _load())
    cells = measure(binary, environment)
    for scenario, cell in cells.items():
        print(f"  {_describe(scenario, cell)}", flush=True)
    row = Row(peer.name, peer.title, packages[_package_of(peer)], peer.way, cells)
    return PeerResult(row, packages, _load())


def _load() -> float:
    """The load of the machine: how many processes wanted to run, on average over a minute."""
    return os.getloadavg()[0]


def _package_of(peer: Peer) -> str:
    """The name of the package that contains the peer."""
    first = peer.packages[0] if peer.packages else peer.name
    return first.partition("@" if peer.node else "==")[0].partition("[")[0]


def _describe(scenario: Scenario, cell: Cell) -> str:
    if cell.value is None:
        return f"{scenario.title}: {cell.why}"
    return f"{scenario.title}: {format_figure(cell.value)}{scenario.unit.value} ({cell.of})"


def _keep(results: Sequence[PeerResult], backend: Backend) -> None:
    """Write the figures, the table and the chart."""
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
        "peers": [each.as_json() for each in results],
    }
    RESULTS.mkdir(exist_ok=True)
    _write("peers.json", json.dumps(kept, indent=2, ensure_ascii=False) + "\n")
    _write("peers.md", as_markdown(rows, about=about))
    _write("peers.svg", as_svg(rows, title=f"tampu and its peers, {server}, {date}; log scale"))


def _cell_json(cell: Cell) -> dict[str, object]:
    if cell.value is None:
        return {"why": cell.why}
    rounds = [float(f"{each:.4g}") for each in cell.rounds]
    return {"value": float(f"{cell.value:.4g}"), "rounds": rounds, "of": cell.of}


def _write(name: str, text: str) -> None:
    path = RESULTS / name
    path.write_text(text, "utf-8")
    print(f"wrote {path.relative_to(RESULTS.parents[1])}")


if __name__ == "__main__":
    main()
