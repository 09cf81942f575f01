"""`python -m benchmarks.peers [PEER ...]`: compare peers, print a table, write results/peers.*.

With `--flow`: priorities, rates and limits of concurrency, in results/peers-flow.*.
"""

import argparse
import json
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from benchmarks.peers.catalog import FLOW_PEERS, PEERS, TAMPU, Peer
from benchmarks.peers.chart import as_svg
from benchmarks.peers.comparison import (
    Cell,
    Column,
    FlowScenario,
    Row,
    Scenario,
    failed_cells,
    join_passes,
)
from benchmarks.peers.environment import PeerEnvironment, Unavailable, prepare_environment
from benchmarks.peers.flow import measure_flow
from benchmarks.peers.measure import measure
from benchmarks.peers.table import as_markdown, as_text, format_figure
from benchmarks.workload import PAYLOAD_BYTES
from tests.servers import BACKENDS, Backend

RESULTS: Final = Path(__file__).resolve().parents[1] / "results"
BACKEND: Final = "redis8"  # the only one that all peers can use


@dataclass(frozen=True, slots=True)
class Table:
    """What is compared: the peers, the columns, and the name of the files in results/."""

    peers: tuple[Peer, ...]
    columns: type[Column]
    measure: Callable[[Path, PeerEnvironment], dict[Column, Cell]]
    file: str


PLAIN: Final = Table(PEERS, Scenario, measure, "peers")
FLOW: Final = Table(FLOW_PEERS, FlowScenario, measure_flow, "peers-flow")


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
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("peer", nargs="*", help=f"{_names(PLAIN)}; default: all")
    parser.add_argument("--flow", action="store_true", help=f"flow control of {_names(FLOW)}")
    parser.add_argument("--backend", choices=[each.name for each in BACKENDS], default=BACKEND)
    parser.add_argument("--passes", type=int, default=1, help="measure everything this many times")
    options = parser.parse_args()
    table = FLOW if options.flow else PLAIN
    if unknown := set(options.peer) - {peer.name for peer in table.peers}:
        parser.error(f"unknown peer: {', '.join(sorted(unknown))}; known: {_names(table)}")
    backend = next(each for each in BACKENDS if each.name == options.backend)
    binary = backend.find()
    if binary is None:
        parser.error(f"{backend.name}: not installed on this machine")
    peers = [each for each in table.peers if not options.peer or each.name in options.peer]
    chosen = replace(table, peers=tuple(dict.fromkeys((TAMPU, *peers))))
    results = _measure(chosen, binary, options.passes)
    print(f"\n{as_text([each.row for each in results])}")
    if chosen == table:
        _keep(table, results, backend)
    else:
        print("results/ is unchanged, because not all peers were measured")


def _names(table: Table) -> str:
    return ", ".join(peer.name for peer in table.peers if peer is not TAMPU)


def _measure(table: Table, binary: Path, passes: int) -> list[PeerResult]:
    results = [_measure_peer(table, peer, binary) for peer in table.peers]
    for _ in range(passes - 1):
        results = [
            result.join(_measure_peer(table, peer, binary))
            for peer, result in zip(table.peers, results, strict=True)
        ]
    return results


def _measure_peer(table: Table, peer: Peer, binary: Path) -> PeerResult:
    print(peer.title, flush=True)
    try:
        environment = prepare_environment(peer)
        packages = environment.versions()
    except Unavailable as error:
        print(f"  {error}")
        row = Row(peer.name, peer.title, "", peer.way, failed_cells(str(error), table.columns))
        return PeerResult(row, {}, _load())
    cells = table.measure(binary, environment)
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


def _describe(scenario: Column, cell: Cell) -> str:
    if cell.value is None:
        return f"{scenario.title}: {cell.why}"
    return f"{scenario.title}: {format_figure(cell.value)}{scenario.unit.value} ({cell.of})"


def _keep(table: Table, results: Sequence[PeerResult], backend: Backend) -> None:
    """Write the figures and the table, and a chart of plain jobs."""
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
    _write(f"{table.file}.json", json.dumps(kept, indent=2, ensure_ascii=False) + "\n")
    _write(f"{table.file}.md", as_markdown(rows, about=about))
    if table is PLAIN:
        title = f"tampu and its peers, {server}, {date}; log scale"
        _write(f"{table.file}.svg", as_svg(rows, title=title))


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
