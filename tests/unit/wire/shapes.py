"""Random values and hostile bytes for the tests of the wire."""

from typing import Final

from hypothesis import strategies as st

from tampu.wire.envelope import Envelope, RetryOverride, WireBackoff

uint32 = st.integers(0, 2**32 - 1)
uint64 = st.integers(0, 2**64 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
floats = st.floats(allow_nan=False)

_keys = st.one_of(texts, st.integers(-(2**63), 2**64 - 1), st.binary(max_size=8))
_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    floats,
    texts,
    st.binary(max_size=40),
)
plain_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(_keys, inner, max_size=5),
    max_leaves=12,
)

backoffs = st.builds(
    WireBackoff,
    kind=st.sampled_from(["fixed", "exponential", "linear", "Fixed", ""]),
    delay_ms=uint64,
    max_delay_ms=st.none() | uint64,
    multiplier=st.none() | floats,
    jitter_ms=st.none() | uint64,
)
retries = st.builds(RetryOverride, max_attempts=st.none() | uint32, backoff=st.none() | backoffs)
envelopes = st.builds(
    Envelope,
    id=texts,
    payload=st.binary(max_size=300),
    created_at_ms=uint64,
    attempt=uint32,
    retry=st.none() | retries,
)


@st.composite
def mutated(draw: st.DrawFn, originals: list[bytes]) -> bytes:
    """Valid bytes after a few accidents: a byte changed, cut out or put in, the end torn off."""
    data = bytearray(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        match draw(st.sampled_from(["change", "cut", "insert", "tear"])):
            case "change":
                data[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case "cut":
                del data[at : at + draw(st.integers(1, 4))]
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=6))
            case _:
                del data[at:]
    return bytes(data)


NESTED: Final = 100_000
HOSTILE: Final = {
    "array of 4 billion": b"\xdd\xff\xff\xff\xff",
    "map of 4 billion": b"\xdf\xff\xff\xff\xff",
    "array of 65535": b"\xdc\xff\xff",
    "str of 4 GB": b"\xdb\xff\xff\xff\xff",
    "bin of 4 GB": b"\xc6\xff\xff\xff\xff",
    "ext of 4 GB": b"\xc9\xff\xff\xff\xff\x01",
    "payload of 4 GB": b"\x94\xa1i\xc6\xff\xff\xff\xff",
    "payload of 4 billion": b"\x94\xa1i\xdd\xff\xff\xff\xff",
    "deep arrays": b"\x91" * NESTED,
    "deep closed arrays": b"\x91" * NESTED + b"\xc0",
    "deep maps": b"\x81\xa1a" * NESTED,
    "deep payload": b"\x94\xa1i" + b"\x91" * NESTED + b"\xc0\x00\x00",
    "deep array32": b"\xdd\x00\x00\x00\x01" * NESTED,
    "wide then cut off": b"\xdd\x00\x0f\xff\xff" + b"\xc0" * 100_000,
}
