"""Encoding and decoding an envelope, against python-msgpack."""

from collections.abc import Callable
from time import perf_counter
from typing import Final

import msgpack

from benchmarks.bench import Bench
from benchmarks.figures import Comparison, Figure
from tampu.wire.envelope import Envelope, decode_envelope, encode_fresh

JOB_ID: Final = "01M7EZ5QDTGMD2KR1JWEZAS2SM"
PAYLOAD: Final = msgpack.packb({"to": "ada@example.com", "n": 1})
CREATED_AT_MS: Final = 1_794_725_043_642
ENVELOPE: Final = encode_fresh(JOB_ID, PAYLOAD, CREATED_AT_MS)

CALLS: Final = 20_000
ROUNDS: Final = 15


async def run(bench: Bench) -> list[Figure]:
    """Encode and decode; msgpack with and without the checks that make a typed value."""
    del bench  # the codec needs no server
    assert msgpack.packb([JOB_ID, PAYLOAD, CREATED_AT_MS, 0]) == ENVELOPE
    assert decode_with_msgpack(ENVELOPE) == decode_envelope(ENVELOPE)
    ours, checked, bare = fastest(
        lambda: decode_envelope(encode_fresh(JOB_ID, PAYLOAD, CREATED_AT_MS)),
        lambda: decode_with_msgpack(msgpack.packb([JOB_ID, PAYLOAD, CREATED_AT_MS, 0])),
        lambda: msgpack.unpackb(msgpack.packb([JOB_ID, PAYLOAD, CREATED_AT_MS, 0])),
    )
    return [
        Comparison("encode + decode to a checked value", 1 / ours, "msgpack", 1 / checked, 3.0),
        Comparison("the same against msgpack's bare list", 1 / ours, "msgpack", 1 / bare),
    ]


def decode_with_msgpack(data: bytes) -> Envelope:
    """What a program with python-msgpack has to do to get what `decode_envelope` returns."""
    row = msgpack.unpackb(data)
    if type(row) is not list or len(row) != 4:
        raise ValueError("not an envelope without retry settings")
    job_id, payload, created_at_ms, attempt = row
    if type(job_id) is not str or type(payload) is not bytes:
        raise ValueError("not an id and a payload")
    if type(created_at_ms) is not int or type(attempt) is not int:
        raise ValueError("not two numbers")
    if created_at_ms < 0 or not 0 <= attempt < 2**32:
        raise ValueError("numbers out of range")
    return Envelope(job_id, payload, created_at_ms, attempt)


def fastest(*calls: Callable[[], object]) -> list[float]:
    """Seconds per call in the best round of each. They take turns, so noise affects all alike."""
    best = [float("inf")] * len(calls)
    empty = min(_time_round(lambda: None) for _ in range(ROUNDS))
    for _ in range(ROUNDS):
        for number, call in enumerate(calls):
            best[number] = min(best[number], _time_round(call))
    return [(seconds - empty) / CALLS for seconds in best]


def _time_round(call: Callable[[], object]) -> float:
    started = perf_counter()
    for _ in range(CALLS):
        call()
    return perf_counter() - started
