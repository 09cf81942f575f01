"""Entries become deliveries or dead letters."""

import msgpack
import pytest

from tampu.consumer.handler import HandlerPlan
from tampu.consumer.intake import Arrival, Delivery, Intake, Rejected
from tampu.wire.dead import BuryReason
from tampu.wire.envelope import Envelope, RetryOverride, encode_envelope
from tampu.wire.extras import Extras, append_extras, encode_extras
from tests.unit.consumer.deliveries import NoHost, plan

NOW_MS = 5000
PLAN = plan(attempts=3, timeout_s=9.0)


def intake(
    plans: dict[str | None, HandlerPlan] | None = None, *, max_payload: int = 1000
) -> Intake:
    return Intake(plans or {None: PLAN}, max_payload=max_payload, worker="t-1", host=NoHost())


def body(data: object = 1, *, attempt: int = 0, retry: RetryOverride | None = None) -> bytes:
    return encode_envelope(Envelope("j", msgpack.packb(data), 1000, attempt, retry))


def accepted(
    fields: list[bytes], *, by: Intake | None = None, deliveries: int = 1
) -> Delivery | Rejected:
    arrival = Arrival(1.5, NOW_MS, deliveries)
    found = (by or intake()).accept([(b"1-1", fields)], arrival)
    ((one,),) = [each for each in (found.deliveries, found.rejected) if each]
    return one


def delivered(fields: list[bytes], *, by: Intake | None = None, deliveries: int = 1) -> Delivery:
    one = accepted(fields, by=by, deliveries=deliveries)
    assert isinstance(one, Delivery)
    return one


def refused(fields: list[bytes], *, by: Intake | None = None, deliveries: int = 1) -> Rejected:
    one = accepted(fields, by=by, deliveries=deliveries)
    assert isinstance(one, Rejected)
    return one


class TestRaw:
    @pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x01", b"\x91" * 300])
    @pytest.mark.parametrize("name", [[], [b"n", b"greet"]], ids=["unnamed", "named"])
    def test_payloads_stay_bytes_whatever_they_hold(
        self, payload: bytes, name: list[bytes]
    ) -> None:
        raw = Intake({None: PLAN}, max_payload=1000, worker="t-1", host=NoHost(), raw=True)
        envelope = encode_envelope(Envelope("j", payload, 1000))
        one = delivered([b"d", envelope, *name], by=raw)
        assert (one.job.data, one.job.name) == (payload, "greet" if name else "")

    def test_one_that_is_too_large_is_refused_all_the_same(self) -> None:
        raw = Intake({None: PLAN}, max_payload=10, worker="t-1", host=NoHost(), raw=True)
        large = encode_envelope(Envelope("j", b"\xc1" * 11, 1000))
        one = refused([b"d", large, b"n", b"x"], by=raw)
        assert one.letter.reason is BuryReason.OVERSIZE_PAYLOAD


class TestAccepted:
    @pytest.mark.parametrize(
        "fields",
        [
            [b"d", body({"k": 1}), b"n", b"greet"],
            [b"n", b"greet", b"d", body({"k": 1})],
            [b"d", body({"k": 1}), b"n", b"greet", b"zz", b"?"],
            [b"d", body({"k": 1}), b"n", b"greet", b"x", b"\x80"],
        ],
        ids=["short way", "turned", "unknown field", "no extras"],
    )
    def test_a_job_is_the_same_by_the_short_way_and_the_long(self, fields: list[bytes]) -> None:
        one = delivered(fields)
        job = one.job
        assert (job.id, job.name, job.data) == ("j", "greet", {"k": 1})
        assert (job.attempt, job.created_at_ms) == (1, 1000)
        assert (one.entry_id, one.raw_name, one.read_at) == (b"1-1", b"greet", 1.5)
        assert (one.timeout_s, one.budget) == (9.0, 3)

    def test_without_a_name_it_is_empty(self) -> None:
        assert delivered([b"d", body()]).job.name == ""
        assert delivered([b"d", body(), b"n", b"\xff"]).job.name == ""

    @pytest.mark.parametrize(
        "fields", [[b"d", body(attempt=1)], [b"d", body(attempt=1), b"n", b"a"]]
    )
    def test_deliveries_before_this_one_count_as_attempts(self, fields: list[bytes]) -> None:
        assert delivered(fields, deliveries=2).job.attempt == 3

    def test_extras_are_read_from_beside_or_behind_the_envelope(self) -> None:
        extras = Extras(timeout_ms=2500, tenant="t", headers={"h": "v"})
        raw = encode_extras(extras)
        assert raw is not None
        for fields in (
            [b"d", body(), b"n", b"a", b"x", raw],
            [b"d", append_extras(body(), extras)],
            [b"d", append_extras(body(), extras), b"n", b"a"],
        ):
            one = delivered(fields)
            assert (one.job.extras, one.extras, one.timeout_s) == (extras, raw, 2.5)

    def test_a_job_that_says_how_often_it_may_run_is_believed(self) -> None:
        retry = RetryOverride(7, None)
        assert delivered([b"d", body(attempt=6, retry=retry), b"n", b"a"]).budget == 7

    def test_each_name_has_its_plan_and_none_takes_the_others(self) -> None:
        mine, rest = plan(), plan()
        by = intake({"mine": mine, None: rest})
        assert delivered([b"d", body(), b"n", b"mine"], by=by).plan is mine
        assert delivered([b"d", body(), b"n", b"yours"], by=by).plan is rest

    def test_more_names_than_are_remembered_are_still_told_apart(self) -> None:
        by = intake()
        for number in range(2500):
            name = f"n{number}"
            assert delivered([b"d", body(), b"n", name.encode()], by=by).job.name == name

    def test_an_entry_that_was_deleted_meanwhile_is_neither(self) -> None:
        found = intake().accept([(b"1-1", None)], Arrival(0.0, NOW_MS))
        assert (found.deliveries, found.rejected) == ([], [])

    def test_good_and_bad_entries_are_sorted_in_their_order(self) -> None:
        entries = [(b"%d-1" % i, [b"d", b"\xc1" if i % 2 else body(i)]) for i in range(10)]
        found = intake().accept(entries, Arrival(0.0, NOW_MS))
        assert [each.job.data for each in found.deliveries] == [0, 2, 4, 6, 8]
        assert [each.entry_id for each in found.rejected] == [b"%d-1" % i for i in (1, 3, 5, 7, 9)]


class TestRefused:
    @pytest.mark.parametrize(
        "fields", [[], [b"n", b"greet"], [b"n", b"greet", b"q", b"\xff"], [b"d"]]
    )
    def test_an_entry_without_an_envelope_keeps_all_fields(self, fields: list[bytes]) -> None:
        letter = refused(fields).letter
        assert letter.reason is BuryReason.MALFORMED
        assert msgpack.unpackb(letter.entry or b"", raw=True) == fields

    @pytest.mark.parametrize("named", [[], [b"n", b"greet"]])
    @pytest.mark.parametrize(
        "raw", [b"", b"\xc1", b"\x95\xa1j", msgpack.packb(["j", b"\xc1", 1, 0])]
    )
    def test_what_cannot_be_decoded_keeps_its_bytes_and_name(
        self, raw: bytes, named: list[bytes]
    ) -> None:
        one = refused([b"d", raw, *named])
        letter = one.letter
        assert letter.reason is BuryReason.DECODE_FAILED
        assert (letter.envelope, letter.raw_name) == (raw, named[1] if named else b"")
        assert (letter.detail or "").endswith(".")
        assert (one.attempt, letter.worker, letter.buried_at_ms) == (0, "t-1", NOW_MS)

    def test_what_is_too_large_is_not_even_decoded(self) -> None:
        letter = refused([b"d", bytes(3001), b"n", b"greet"]).letter
        assert letter.reason is BuryReason.OVERSIZE_PAYLOAD
        assert letter.detail == "3001 bytes, and 1000 are allowed"
        assert len(letter.envelope) == 3001

    def test_the_payload_is_what_is_measured_not_the_envelope_around_it(self) -> None:
        largest = "x" * 997  # 1000 bytes with its header
        assert delivered([b"d", body(largest), b"n", b"greet"]).job.data == largest
        one = refused([b"d", body(largest + "x"), b"n", b"greet"])
        assert one.letter.reason is BuryReason.OVERSIZE_PAYLOAD
        assert one.letter.detail == "1001 bytes, and 1000 are allowed"
        assert one.job_id == "j"

    def test_a_name_without_a_handler_is_told_with_those_that_have_one(self) -> None:
        one = refused([b"d", body(attempt=1), b"n", b"part"], by=intake({"greet": PLAN}))
        assert one.letter.reason is BuryReason.UNKNOWN_HANDLER
        assert one.letter.detail == "no handler for jobs named 'part'; this worker has 'greet'"
        assert (one.job_id, one.attempt) == ("j", 1)

    @pytest.mark.parametrize("named", [[], [b"n", b"greet"]])
    def test_spent_attempts_are_told_apart_from_workers_that_died(self, named: list[bytes]) -> None:
        spent = refused([b"d", body(attempt=3), *named])
        assert (spent.letter.reason, spent.attempt) == (BuryReason.RETRIES_EXHAUSTED, 3)
        died = refused([b"d", body(attempt=1), *named], deliveries=3)
        assert (died.letter.reason, died.attempt) == (BuryReason.CRASHED, 3)
        assert died.letter.detail == "its worker died in attempt 3 of 3"

    @pytest.mark.parametrize(("deadline_ms", "late"), [(NOW_MS, False), (NOW_MS - 1, True)])
    def test_a_deadline_counts_to_the_millisecond(self, deadline_ms: int, late: bool) -> None:  # noqa: FBT001
        raw = encode_extras(Extras(deadline_ms=deadline_ms)) or b""
        one = accepted([b"d", body(), b"x", raw])
        assert isinstance(one, Rejected) is late
        if isinstance(one, Rejected):
            assert one.letter.reason is BuryReason.EXPIRED
            assert one.letter.extras == raw
            assert one.letter.detail == "it was to start 1 ms ago"

    def test_extras_that_cannot_be_decoded_bury_the_job_and_are_kept(self) -> None:
        one = refused([b"d", body(), b"x", b"\xc1"])
        assert one.letter.reason is BuryReason.DECODE_FAILED
        assert (one.letter.extras, one.job_id) == (b"\xc1", "j")
