import os
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from benchmarks.peers import protocol
from benchmarks.peers.catalog import FLOW_PEERS, OURS, PEERS
from benchmarks.peers.environment import ROOT, PeerEnvironment, Unavailable
from benchmarks.peers.measure import pause_s
from benchmarks.peers.processes import LineReader, PeerFailed, ProducerProcess
from benchmarks.workload import CONCURRENCY, DATA, NAME, QUEUE

FOLDER = ROOT / "benchmarks" / "peers"


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    os.close(read)
    os.close(write)


def test_lines_are_complete_however_they_were_written(pipe: tuple[int, int]) -> None:
    read, write = pipe
    lines = LineReader(read)
    os.write(write, b"one\ntw")
    assert lines.next(1) == "one"
    os.write(write, b"o\n")
    assert lines.next(1) == "two"


def test_a_line_that_is_not_complete_in_time_is_none(pipe: tuple[int, int]) -> None:
    read, write = pipe
    os.write(write, b"half a line")
    assert LineReader(read).next(0.01) is None


def test_a_closed_pipe_returns_none_at_once() -> None:
    read, write = os.pipe()
    os.close(write)
    assert LineReader(read).next(60) is None
    os.close(read)


def test_samples_are_spread_over_the_interval_of_a_peer_that_polls() -> None:
    random = Random(1)  # noqa: S311 - only spreads samples
    tenths = {int(10 * pause_s(random)) for _ in range(100)}
    assert tenths >= {0, 1, 2, 3, 4}


def test_every_peer_has_a_file_and_pinned_packages() -> None:
    for peer in (*PEERS, *FLOW_PEERS):
        assert (FOLDER / f"{peer.name}{'.mjs' if peer.node else '.py'}").exists()
        separator = "@" if peer.node else "=="
        assert all(separator in package for package in peer.packages)
        assert peer.packages or peer.name == OURS


def test_a_peer_runs_in_its_own_environment() -> None:
    peer = next(peer for peer in PEERS if peer.name == "rq")
    environment = PeerEnvironment(peer, Path("folder") / "rq")
    assert environment.command("work")[0] == str(Path("folder") / "rq" / "bin" / "python")
    assert environment.command("work")[-2:] == ["rq", "work"]


def test_a_broken_environment_is_reported(tmp_path: Path) -> None:
    peer = next(peer for peer in PEERS if peer.name == "rq")
    environment = PeerEnvironment(peer, tmp_path)  # contains no Python
    with pytest.raises(Unavailable, match="cannot list packages"):
        environment.versions()
    with pytest.raises(PeerFailed, match="cannot start RQ's add"):
        ProducerProcess(environment, {"PEER_NOTES": str(tmp_path / "notes")})


def test_the_javascript_program_uses_the_same_constants_and_requests() -> None:
    text = (FOLDER / "bullmq.mjs").read_text("utf-8")
    constants = dict(re.findall(r"^const ([A-Z_]+) = (.+);$", text, re.MULTILINE))
    counted = constants.pop("COUNTED")
    assert constants == {
        "QUEUE": f"'{QUEUE}'",
        "NAME": f"'{NAME}'",
        "DATA": f"{{ to: '{DATA['to']}' }}",
        "CONCURRENCY": str(CONCURRENCY),
        "NOTE_EVERY": str(protocol.NOTE_EVERY),
        "URGENT": f"'{protocol.URGENT}'",
        "SLOW_JOB_S": str(protocol.SLOW_JOB_S),
        "RATE_PER_S": str(protocol.RATE_PER_S),
        "OPEN_RATE_PER_S": f"{protocol.OPEN_RATE_PER_S:_}",
        "HIGHEST": "1",
        "LOWEST": "10",
    }
    requests = {
        protocol.ADD,
        protocol.ADD_MANY,
        protocol.ADD_ONE,
        protocol.ADD_URGENT,
        protocol.ADD_DELAYED,
        protocol.ADD_GROUPS,
        protocol.WAIT_FOR_RESULT,
    }
    assert set(re.findall(r"case '(\w+)'", text)) == requests
    scenarios = set(re.findall(r"scenario === '(\w+)'", text))
    own = {protocol.LATENESS, protocol.RESULT, protocol.OVERTAKE, protocol.JOINS}
    assert scenarios == own
    # It has no limit of concurrency by value.
    assert set(re.findall(r"'(\w+)'", counted)) == protocol.COUNTED - {protocol.CONCURRENCY}
    for name, scenario in {"rates": protocol.RATE, "priorities": protocol.OVERTAKE}.items():
        assert re.search(rf"^const {name} = {{ .*\b{scenario}: ", text, re.MULTILINE)
