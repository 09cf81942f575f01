"""The harness that compares peers, with the one peer that is always there."""

from pathlib import Path

import pytest

from benchmarks.peers import asked
from benchmarks.peers.home import find_home
from benchmarks.peers.pins import TAMPU
from benchmarks.peers.side import PeerFailed, ProducerSide, WorkerSide
from tests.servers import RunningServer

LIMIT_S = 15


def surroundings(running: RunningServer, folder: Path, scenario: str) -> dict[str, str]:
    notes = str(folder / "notes")
    return {"PEER_URL": running.url, "PEER_NOTES": notes, "PEER_SCENARIO": scenario}


def test_what_a_producer_adds_is_noted_by_a_worker(running: RunningServer, tmp_path: Path) -> None:
    home = find_home(TAMPU)
    told = surroundings(running, tmp_path, asked.DISPATCH)
    with WorkerSide(home, told) as worker, ProducerSide(home, told) as producer:
        at = producer.ask(asked.ONCE)["at"]
        note = worker.note(LIMIT_S)
    assert note is not None
    assert 0 < note.at - at < LIMIT_S


def test_a_worker_counts_the_jobs_of_a_filled_queue(running: RunningServer, tmp_path: Path) -> None:
    home = find_home(TAMPU)
    told = surroundings(running, tmp_path, asked.CONSUME)
    with ProducerSide(home, told) as producer:
        added = producer.ask(asked.ADD_MANY, jobs=300, a_call=100, limit_s=LIMIT_S)
        producer.end()
    assert added["jobs"] == 300
    with WorkerSide(home, told) as worker:
        notes = [worker.note(LIMIT_S) for _ in range(4)]
    assert [note.what for note in notes if note] == [1, 100, 200, 300]


def test_a_side_that_cannot_work_says_so(tmp_path: Path) -> None:
    home = find_home(TAMPU)
    told = {"PEER_URL": "nowhere://", "PEER_NOTES": str(tmp_path / "notes"), "PEER_SCENARIO": ""}
    with ProducerSide(home, told) as producer:
        with pytest.raises(PeerFailed, match=r"tampu's add gave no answer: .+"):
            producer.ask(asked.ONCE)
