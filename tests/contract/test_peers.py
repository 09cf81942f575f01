"""The comparison of peers, with tampu as the only peer."""

from pathlib import Path

import pytest

from benchmarks.peers import protocol
from benchmarks.peers.catalog import TAMPU
from benchmarks.peers.environment import prepare_environment
from benchmarks.peers.processes import PeerFailed, ProducerProcess, WorkerProcess
from tests.servers import RunningServer

LIMIT_S = 15


def variables_for(running: RunningServer, folder: Path, scenario: str) -> dict[str, str]:
    notes = str(folder / "notes")
    return {"PEER_URL": running.url, "PEER_NOTES": notes, "PEER_SCENARIO": scenario}


def test_a_worker_writes_a_note_for_a_job_that_a_producer_added(
    running: RunningServer, tmp_path: Path
) -> None:
    environment = prepare_environment(TAMPU)
    variables = variables_for(running, tmp_path, protocol.DISPATCH)
    with (
        WorkerProcess(environment, variables) as worker,
        ProducerProcess(environment, variables) as producer,
    ):
        at = producer.request(protocol.ADD_ONE)["at"]
        note = worker.next_note(LIMIT_S)
    assert note is not None
    assert 0 < note.at - at < LIMIT_S


def test_a_worker_counts_the_jobs_of_a_filled_queue(running: RunningServer, tmp_path: Path) -> None:
    environment = prepare_environment(TAMPU)
    variables = variables_for(running, tmp_path, protocol.CONSUME)
    with ProducerProcess(environment, variables) as producer:
        added = producer.request(protocol.ADD_MANY, jobs=300, jobs_per_call=100, limit_s=LIMIT_S)
        producer.end()
    assert added["jobs"] == 300
    with WorkerProcess(environment, variables) as worker:
        notes = [worker.next_note(LIMIT_S) for _ in range(4)]
    assert [note.value for note in notes if note] == [1, 100, 200, 300]


@pytest.mark.parametrize(
    "scenario",
    [protocol.PRIORITIES, protocol.OVERTAKE, protocol.OPEN_RATE, protocol.CONCURRENCY],
)
def test_a_worker_counts_jobs_with_priorities_and_limits(
    running: RunningServer, tmp_path: Path, scenario: str
) -> None:
    environment = prepare_environment(TAMPU)
    variables = variables_for(running, tmp_path, scenario)
    with ProducerProcess(environment, variables) as producer:
        added = producer.request(protocol.ADD_MANY, jobs=200, jobs_per_call=100, limit_s=LIMIT_S)
        producer.end()
    assert added["jobs"] == 200
    with WorkerProcess(environment, variables) as worker:
        notes = [worker.next_note(LIMIT_S) for _ in range(3)]
    assert [note.value for note in notes if note] == [1, 100, 200]


def test_an_urgent_job_writes_a_note_of_its_own(running: RunningServer, tmp_path: Path) -> None:
    environment = prepare_environment(TAMPU)
    variables = variables_for(running, tmp_path, protocol.OVERTAKE)
    with (
        WorkerProcess(environment, variables) as worker,
        ProducerProcess(environment, variables) as producer,
    ):
        at = producer.request(protocol.ADD_URGENT)["at"]
        note = worker.next_note(LIMIT_S)
    assert note is not None
    assert note.value == 0
    assert 0 < note.at - at < LIMIT_S


def test_a_program_that_fails_is_reported(tmp_path: Path) -> None:
    environment = prepare_environment(TAMPU)
    variables = {
        "PEER_URL": "nowhere://",
        "PEER_NOTES": str(tmp_path / "notes"),
        "PEER_SCENARIO": "",
    }
    with ProducerProcess(environment, variables) as producer:
        with pytest.raises(PeerFailed, match=r"tampu's add did not answer: .+"):
            producer.request(protocol.ADD_ONE)
