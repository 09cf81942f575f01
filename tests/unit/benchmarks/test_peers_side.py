import os
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from benchmarks.peers import asked
from benchmarks.peers.home import ROOT, Home, Unavailable
from benchmarks.peers.measure import pause_s
from benchmarks.peers.pins import OURS, PINS
from benchmarks.peers.side import Lines, PeerFailed, ProducerSide
from benchmarks.sample import CONCURRENCY, DATA, NAME, QUEUE

PEERS = ROOT / "benchmarks" / "peers"


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    os.close(read)
    os.close(write)


def test_lines_come_whole_however_they_were_written(pipe: tuple[int, int]) -> None:
    read, write = pipe
    lines = Lines(read)
    os.write(write, b"one\ntw")
    assert lines.next(1) == "one"
    os.write(write, b"o\n")
    assert lines.next(1) == "two"


def test_a_line_that_does_not_come_in_time_is_none(pipe: tuple[int, int]) -> None:
    read, write = pipe
    os.write(write, b"half a line")
    assert Lines(read).next(0.01) is None


def test_a_pipe_that_was_closed_gives_none_at_once() -> None:
    read, write = os.pipe()
    os.close(write)
    assert Lines(read).next(60) is None
    os.close(read)


def test_who_looks_every_half_second_is_met_at_any_point_of_it() -> None:
    random = Random(1)  # noqa: S311 - spreads samples
    tenths = {int(10 * pause_s(random)) for _ in range(100)}
    assert tenths >= {0, 1, 2, 3, 4}


def test_every_peer_has_a_file_and_pinned_packages() -> None:
    for pin in PINS:
        assert (PEERS / f"{pin.name}{'.mjs' if pin.node else '.py'}").exists()
        separator = "@" if pin.node else "=="
        assert all(separator in package for package in pin.packages)
        assert pin.packages or pin.name == OURS


def test_a_peer_is_run_from_its_own_environment() -> None:
    pin = next(pin for pin in PINS if pin.name == "rq")
    home = Home(pin, Path("homes") / "rq")
    assert home.command("work")[0] == str(Path("homes") / "rq" / "bin" / "python")
    assert home.command("work")[-2:] == ["rq", "work"]


def test_a_peer_whose_environment_is_broken_says_so(tmp_path: Path) -> None:
    pin = next(pin for pin in PINS if pin.name == "rq")
    home = Home(pin, tmp_path)  # there is no Python in it
    with pytest.raises(Unavailable, match="does not list packages"):
        home.versions()
    with pytest.raises(PeerFailed, match="RQ's add cannot be started"):
        ProducerSide(home, {"PEER_NOTES": str(tmp_path / "notes")})


def test_the_program_in_the_other_language_spells_all_as_ours() -> None:
    text = (PEERS / "bullmq.mjs").read_text("utf-8")
    constants = dict(re.findall(r"^const ([A-Z_]+) = (.+);$", text, re.MULTILINE))
    assert constants == {
        "QUEUE": f"'{QUEUE}'",
        "NAME": f"'{NAME}'",
        "DATA": f"{{ to: '{DATA['to']}' }}",
        "CONCURRENCY": str(CONCURRENCY),
        "NOTE_EVERY": str(asked.NOTE_EVERY),
    }
    words = {asked.ADD, asked.ADD_MANY, asked.ONCE, asked.DELAY, asked.WAIT}
    assert set(re.findall(r"case '(\w+)'", text)) == words
    scenarios = set(re.findall(r"scenario === '(\w+)'", text))
    assert scenarios == {asked.CONSUME, asked.LATENESS, asked.RESULT}
