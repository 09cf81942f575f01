import pytest

from tampu.admin.health import Grade
from tampu.outbox.health import judge_rows
from tampu.outbox.rows import RowCounts
from tampu.outbox.schema import MOST_COUNTED

NOW = 1_000_000_000


@pytest.mark.parametrize(
    ("counts", "grade", "part"),
    [
        (RowCounts(0, 0, None), Grade.OK, "0 rows wait"),
        (RowCounts(5, 0, NOW - 59_000), Grade.OK, "5 rows wait"),
        (RowCounts(5, 0, NOW - 90_000), Grade.WARN, "5 rows wait, the oldest for 1m30s; start"),
        (RowCounts(MOST_COUNTED, 0, NOW - 90_000), Grade.WARN, "at least 100000 rows"),
        (RowCounts(5, 2, None), Grade.WARN, "2 rows were set aside"),
    ],
)
def test_what_the_rows_say(counts: RowCounts, grade: Grade, part: str) -> None:
    found, sentence = judge_rows(counts, NOW)
    assert (found, part in sentence) == (grade, True)
