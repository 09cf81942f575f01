import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tampu.errors import DecodeError
from tampu.wire.schedule import CronPattern, FireAll, ScheduleSpec, encode_spec
from tampu.wire.schedule_reader import decode_spec
from tests.effort import cases
from tests.unit.wire.shapes import HOSTILE, mutated

SPEC = encode_spec(
    ScheduleSpec(
        key="k",
        job_name="j",
        pattern=CronPattern("0 2 * * *", "UTC"),
        slot=b"\xc4\x01\x05",
        limit=3,
        missed=FireAll(5),
    )
)


@settings(max_examples=cases(600), deadline=None)
@given(st.binary(max_size=60) | mutated([SPEC]))
def test_any_bytes_are_a_spec_or_refused(data: bytes) -> None:
    try:
        decode_spec(data).payload()
    except DecodeError:
        return


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_spec(data)
