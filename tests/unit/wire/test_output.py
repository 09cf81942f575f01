"""The stream of a job: its ids, and what a reader makes of its entries."""

from typing import Any

import pytest

from tampu import Chunk, DecodeError, OptionError, Restarted, StreamGap
from tampu.wire.output import (
    BEGINNING,
    LAST_NUMBER,
    ChunkId,
    OutputCursor,
    check_chunk_id,
    encode_chunk,
    read_chunk,
    run_of,
)
from tampu.wire.result import encode_cancelled

JOB = "job-1"
MS = 1_790_000_000_000


def chunk(run: int, number: int, attempt: int = 1, *, asks: bool = False) -> tuple[bytes, Any]:
    """The entry of a chunk whose value is its own number."""
    fields = [b"a", b"%d" % attempt, b"v", encode_chunk(number)]
    return b"%d-%d" % (run, number), [*fields, b"q", b"1"] if asks else fields


def end(run: int, failure: bytes = b"") -> tuple[bytes, Any]:
    return b"%d-%d" % (run, LAST_NUMBER), [b"f", failure]


HELLO = (b"0-1", [b"r", b""])


def read_all(cursor: OutputCursor, *entries: tuple[bytes, Any]) -> list[Any]:
    items = [item for entry in entries for item in cursor.read(*entry)]
    return [item.value if isinstance(item, Chunk) else item for item in items]


class TestRuns:
    @pytest.mark.parametrize(
        ("earlier", "later"),
        [
            ((b"%d-0" % MS, 1), (b"%d-0" % MS, 2)),  # taken over
            ((b"%d-0" % MS, 1), (b"%d-5" % MS, 1)),  # released, and added again at once
            ((b"%d-5" % MS, 9), (b"%d-6" % MS, 1)),
            ((b"%d-4095" % MS, 1023), (b"%d-0" % (MS + 1), 1)),  # retried
        ],
    )
    def test_later_deliveries_are_later_runs(
        self, earlier: tuple[bytes, int], later: tuple[bytes, int]
    ) -> None:
        assert run_of(*earlier) < run_of(*later)

    def test_a_run_fits_into_the_id_of_an_entry(self) -> None:
        assert run_of(b"%d-4095" % (2**42 - 1), 1023) < 2**64  # the year 2109
        assert run_of(b"%d-0" % MS, 1) > 2**60  # after the entries that readers write

    def test_odd_numbers_stay_inside_their_places(self) -> None:
        whole = run_of(b"%d-0" % MS, 0)
        assert whole <= run_of(b"%d-123456789" % MS, 5000) < run_of(b"%d-0" % (MS + 1), 0)


class TestIds:
    def test_an_id_is_read_as_it_is_written(self) -> None:
        assert check_chunk_id("after", "77-3") == ChunkId(77, 3)
        assert ChunkId(77, 3).encode() == b"77-3"
        assert check_chunk_id("after", None) == BEGINNING

    @pytest.mark.parametrize("given", ["", "7", "7-", "-7", "7-x", "1-2-3", " 1-2", 5, b"1-2"])
    def test_anything_else_is_refused(self, given: Any) -> None:  # noqa: ANN401
        with pytest.raises(OptionError, match="expected the id of a chunk"):
            check_chunk_id("after", given)


class TestCursor:
    def test_chunks_of_one_run(self) -> None:
        cursor = OutputCursor(JOB, BEGINNING)
        assert not cursor.has_begun
        assert read_all(cursor, HELLO, chunk(7, 1), chunk(7, 2)) == [1, 2]
        assert cursor.has_begun
        assert (cursor.after, cursor.has_ended) == (b"7-2", False)
        assert read_all(cursor, end(7)) == []
        assert (cursor.has_ended, cursor.failure) == (True, b"")

    def test_what_was_read_before_is_not_read_again(self) -> None:
        cursor = OutputCursor(JOB, ChunkId(7, 2))
        assert read_all(cursor, chunk(7, 1), chunk(7, 2), chunk(7, 3), chunk(7, 3)) == [3]

    def test_another_run_starts_with_its_first_chunk(self) -> None:
        cursor = OutputCursor(JOB, BEGINNING)
        entries = (chunk(7, 1), chunk(9, 1, 2), chunk(9, 2, 2))
        assert read_all(cursor, *entries) == [1, Restarted(2), 1, 2]
        late = OutputCursor(JOB, ChunkId(7, 1))
        assert read_all(late, *entries[1:]) == [Restarted(2), 1, 2]

    @pytest.mark.parametrize(
        ("after", "entry"),
        [
            (BEGINNING, chunk(7, 2)),
            (ChunkId(7, 2), chunk(7, 4)),
            (ChunkId(7, 2), chunk(9, 2)),
        ],
    )
    def test_a_gap_is_an_error(self, after: ChunkId, entry: tuple[bytes, Any]) -> None:
        with pytest.raises(StreamGap, match="Chunks of job job-1 are gone") as caught:
            OutputCursor(JOB, after).read(*entry)
        assert caught.value.next_id == entry[0].decode()

    def test_an_end_says_why(self) -> None:
        cursor = OutputCursor(JOB, BEGINNING)
        assert read_all(cursor, HELLO, end(0, encode_cancelled())) == []
        assert (cursor.has_ended, cursor.failure) == (True, encode_cancelled())

    def test_a_worker_may_ask_to_be_told(self) -> None:
        cursor = OutputCursor(JOB, BEGINNING)
        asked = []
        for entry in (chunk(7, 1), chunk(7, 2, asks=True), chunk(7, 3)):
            cursor.read(*entry)
            asked.append(cursor.asks)
        assert asked == [False, True, False]

    @pytest.mark.parametrize(
        "fields", [None, [], [b"v", b"\x01"], [b"a", b"x", b"v", b"\x01"], [b"a", b"1"], [b"a"]]
    )
    def test_an_unreadable_entry_is_an_error(self, fields: list[bytes] | None) -> None:
        with pytest.raises(DecodeError):
            OutputCursor(JOB, BEGINNING).read(b"7-1", fields)


def test_a_chunk_is_read_without_a_cursor() -> None:
    assert read_chunk(*chunk(7, 3, 2)) == Chunk("7-3", 3, 2)
    assert read_chunk(*end(7)) is None
    assert read_chunk(*HELLO) is None
