"""The codec of one envelope against python-msgpack, in one run on one core."""

from collections.abc import Callable
from time import perf_counter
from typing import Final

import msgpack

from tampu.wire.envelope import Envelope, decode_envelope, encode_fresh

JOB_ID: Final = "01M7EZ5QDTGMD2KR1JWEZAS2SM"
PAYLOAD: Final = msgpack.packb({"to": "ada@example.com", "n": 1})
CREATED_AT_MS: Final = 1_794_725_043_642

CALLS: Final = 20_000
ROUNDS: Final = 15


def run() -> list[str]:
    """Nanoseconds per call and the ratios, as lines of text."""
    data = encode_fresh(JOB_ID, PAYLOAD, CREATED_AT_MS)
    assert msgpack.packb([JOB_ID, PAYLOAD, CREATED_AT_MS, 0]) == data
    assert decode_with_msgpack(data) == decode_envelope(data)
    encode, decode, their_encode, their_decode, their_checked = fastest(
        lambda: encode_fresh(JOB_ID, PAYLOAD, CREATED_AT_MS),
        lambda: decode_envelope(data),
        lambda: msgpack.packb([JOB_ID, PAYLOAD, CREATED_AT_MS, 0]),
        lambda: msgpack.unpackb(data),
        lambda: decode_with_msgpack(data),
    )
    bare = (their_encode + their_decode) / (encode + decode)
    same = (their_encode + their_checked) / (encode + decode)
    return [
        f"tampu    encode {encode:4.0f} ns, decode to a checked value {decode:4.0f} ns",
        f"msgpack  encode {their_encode:4.0f} ns, decode to a checked value "
        f"{their_checked:4.0f} ns, to a bare list {their_decode:4.0f} ns",
        f"ratio    {same:.1f} x for the same work, {bare:.1f} x against the bare list "
        f"(encode {their_encode / encode:.1f} x, decode {their_decode / decode:.1f} x)",
    ]


def decode_with_msgpack(data: bytes) -> Envelope:
    """What a program on python-msgpack has to do for the value that `decode_envelope` gives."""
    row = msgpack.unpackb(data)
    if type(row) is not list or len(row) != 4:
        raise ValueError("not an envelope without an override")
    job_id, payload, created_at_ms, attempt = row
    if type(job_id) is not str or type(payload) is not bytes:
        raise ValueError("not an id and a payload")
    if type(created_at_ms) is not int or type(attempt) is not int:
        raise ValueError("not two numbers")
    if created_at_ms < 0 or not 0 <= attempt < 2**32:
        raise ValueError("numbers out of range")
    return Envelope(job_id, payload, created_at_ms, attempt)


def fastest(*calls: Callable[[], object]) -> list[float]:
    """Nanoseconds that each call takes in its best round; rounds take turns, so noise hits all."""
    best = [float("inf")] * len(calls)
    empty = min(_round(lambda: None) for _ in range(ROUNDS))
    for _ in range(ROUNDS):
        for number, call in enumerate(calls):
            best[number] = min(best[number], _round(call))
    return [(seconds - empty) / CALLS * 1e9 for seconds in best]


def _round(call: Callable[[], object]) -> float:
    started = perf_counter()
    for _ in range(CALLS):
        call()
    return perf_counter() - started
