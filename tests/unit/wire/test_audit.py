"""Entries of the audit stream and records of actions on many jobs, as bytes and back."""

import pytest

from tampu.errors import DecodeError
from tampu.wire.audit import (
    AuditEntry,
    BulkPlan,
    BulkSample,
    decode_audit,
    decode_progress,
    encode_audit,
    encode_plan,
)

PLAN = BulkPlan(
    queue="emails",
    action="cancel",
    filter={"state": "waiting"},
    upto_ms=5,
    matched=1,
    searched_all=True,
    total=1,
    samples=[BulkSample("a", "send")],
)


def test_an_entry_survives_and_long_texts_are_cut() -> None:
    entry = AuditEntry(user="ada", action="cancel", queue="emails", what="job a", count=3)
    assert decode_audit(encode_audit(entry)) == entry
    without = AuditEntry(user="", action="pause", queue="emails", what="x" * 5000)
    assert len(decode_audit(encode_audit(without)).what) == 2048
    assert decode_audit(encode_audit(without)).count is None


def test_an_entry_of_others_is_read_as_far_as_possible() -> None:
    assert decode_audit([b"user", b"\xff", b"count", b"many"]).user == "\ufffd"
    with pytest.raises(DecodeError):
        decode_audit([b"user"])


def test_a_plan_and_its_progress_are_read_from_a_hash() -> None:
    fields = [b"plan", encode_plan(PLAN), b"state", b"running", b"changed", b"7", b"abort", b"-"]
    progress = decode_progress(fields)
    assert (progress.plan, progress.state, progress.changed) == (PLAN, "running", 7)
    assert progress.is_aborted
    assert progress.seen_ms == 0


@pytest.mark.parametrize("fields", [[], [b"state", b"running"], [b"plan", b"\xc1"], [b"plan"]])
def test_a_record_without_a_readable_plan_is_refused(fields: list[bytes]) -> None:
    with pytest.raises(DecodeError):
        decode_progress(fields)
