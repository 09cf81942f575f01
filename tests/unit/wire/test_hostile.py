"""No decoder may be held up or blown up by bytes that promise more than they hold."""

import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress

import pytest

from tampu.errors import DecodeError
from tampu.wire.entry import decode_member
from tampu.wire.envelope import decode_envelope
from tampu.wire.extras import MAGIC, decode_extras, split_extras
from tampu.wire.msgpack import end_of_value
from tampu.wire.payload import decode_payload
from tampu.wire.result import decode_result
from tampu.wire.schedule_reader import decode_spec
from tests.unit.wire.shapes import HOSTILE

DECODERS: dict[str, Callable[[bytes], object]] = {
    "walk": end_of_value,
    "payload": decode_payload,
    "result": decode_result,
    "envelope": decode_envelope,
    "extras": decode_extras,
    "footer": lambda data: split_extras(data + b"\x01\x00\x00\x00" + MAGIC),
    "member": lambda data: decode_member(b"\x00\x00\x00\x00" + data),
    "spec": decode_spec,
}


@pytest.mark.parametrize("decode", DECODERS.values(), ids=DECODERS)
@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_bytes_cost_neither_time_nor_memory(
    decode: Callable[[bytes], object], data: bytes
) -> None:
    assert spent_s(decode, data) < 2
    assert peak_bytes(decode, data) < 10 * len(data) + 100_000  # a list has 8 bytes for a nil's one


@pytest.mark.parametrize("decode", DECODERS.values(), ids=DECODERS)
def test_many_tiny_values_take_time_in_proportion(
    decode: Callable[[bytes], object],
) -> None:
    wide = b"\x94\xa1i\xdd\x00\x04\x00\x00" + b"\x90" * 0x40000 + b"\x00\x00"
    assert spent_s(decode, wide) < 10  # with the square of their number it would be minutes


def spent_s(decode: Callable[[bytes], object], data: bytes) -> float:
    """Processor time, since a busy machine must not fail the test."""
    started = time.process_time()
    with suppress(DecodeError):
        decode(data)
    return time.process_time() - started


def peak_bytes(decode: Callable[[bytes], object], data: bytes) -> int:
    tracemalloc.start()
    try:
        with suppress(DecodeError):
            decode(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak
