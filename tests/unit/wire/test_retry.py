import pytest
from msgspec.msgpack import decode, encode

from tampu.wire.envelope import BackoffKind, RetryOverride, WireBackoff


def test_a_backoff_has_all_five_slots_and_a_float_multiplier() -> None:
    backoff = WireBackoff("exponential", 100, None, 3, None)
    assert encode(backoff) == encode(["exponential", 100, None, 3.0, None])


def test_an_override_has_both_slots() -> None:
    assert encode(RetryOverride(5, None)) == bytes.fromhex("9205c0")
    assert encode(RetryOverride(None, None)) == bytes.fromhex("92c0c0")


@pytest.mark.parametrize(
    ("kind", "effective"),
    [
        ("fixed", BackoffKind.FIXED),
        ("exponential", BackoffKind.EXPONENTIAL),
        ("Fixed", BackoffKind.EXPONENTIAL),
        ("linear", BackoffKind.EXPONENTIAL),
        ("", BackoffKind.EXPONENTIAL),
    ],
)
def test_every_kind_but_fixed_counts_as_exponential_and_keeps_its_text(
    kind: str, effective: BackoffKind
) -> None:
    backoff = decode(encode([kind, 1, None, None, None]), type=WireBackoff)
    assert backoff.effective_kind is effective
    assert encode(backoff) == encode([kind, 1, None, None, None])
