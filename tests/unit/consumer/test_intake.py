"""Entries become deliveries or dead deads."""

import msgpack
import pytest

from tampu.consumer.handler import HandlerPlan
from tampu.consumer.intake import Arrival, BuryEntry, Delivery, Intake
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


def accept(
    fields: list[bytes], *, by: Intake | None = None, deliveries: int = 1
) -> Delivery | BuryEntry:
    arrival = Arrival(1.5, NOW_MS, deliveries)
    found = (by or intake()).accept([(b"1-1", fields)], arrival)
    ((one,),) = [each for each in (found.deliveries, found.refused) if each]
    return one


def deliver(fields: list[bytes], *, by: Intake | None = None, deliveries: int = 1) -> Delivery:
    one = accept(fields, by=by, deliveries=deliveries)
    assert isinstance(one, Delivery)
    return one


def refuse(fields: list[bytes], *, by: Intake | None = None, deliveries: int = 1) -> BuryEntry:
    one = accept(fields, by=by, deliveries=deliveries)
    assert isinstance(one, BuryEntry)
    return one


class TestRaw:
    @pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x01", b"\x91" * 300])
    @pytest.mark.parametrize("name", [[], [b"n", b"greet"]], ids=["unnamed", "named"])
    def test_payloads_stay_bytes_and_are_not_checked(
        self, payload: bytes, name: list[bytes]
    ) -> None:
        raw = Intake({None: PLAN}, max_payload=1000, worker="t-1", host=NoHost(), raw=True)
        envelope = encode_envelope(Envelope("j", payload, 1000))
        one = deliver([b"d", envelope, *name], by=raw)
        assert (one.job.data, one.job.name) == (payload, "greet" if name else "")

    def test_a_payload_that_is_too_large_is_still_refused(self) -> None:
        raw = Intake({None: PLAN}, max_payload=10, worker="t-1", host=NoHost(), raw=True)
        large = encode_envelope(Envelope("j", b"\xc1" * 11, 1000))
        one = refuse([b"d", large, b"n", b"x"], by=raw)
        assert one.dead.reason is BuryReason.OVERSIZE_PAYLOAD


class TestAccepted:
    @pytest.mark.parametrize(
        "fields",
        [
            [b"d", body({"k": 1}), b"n", b"greet"],
            [b"n", b"greet", b"d", body({"k": 1})],
            [b"d", body({"k": 1}), b"n", b"greet", b"zz", b"?"],
            [b"d", body({"k": 1}), b"n", b"greet", b"x", b"\x80"],
        ],
        ids=["quick way", "other order", "unknown field", "no extras"],
    )
    def test_the_fast_and_the_slow_decoder_agree(self, fields: list[bytes]) -> None:
        one = deliver(fields)
        job = one.job
        assert (job.id, job.name, job.data) == ("j", "greet", {"k": 1})
        assert (job.attempt, job.created_at_ms) == (1, 1000)
        assert (one.entry_id, one.raw_name, one.read_at) == (b"1-1", b"greet", 1.5)
        assert (one.timeout_s, one.budget) == (9.0, 3)

    def test_a_missing_or_malformed_name_is_empty(self) -> None:
        assert deliver([b"d", body()]).job.name == ""
        assert deliver([b"d", body(), b"n", b"\xff"]).job.name == ""

    @pytest.mark.parametrize(
        "fields", [[b"d", body(attempt=1)], [b"d", body(attempt=1), b"n", b"a"]]
    )
    def test_deliveries_before_this_one_count_as_attempts(self, fields: list[bytes]) -> None:
        assert deliver(fields, deliveries=2).job.attempt == 3

    def test_extras_are_read_from_their_field_or_from_after_the_envelope(self) -> None:
        extras = Extras(timeout_ms=2500, tenant="t", headers={"h": "v"})
        raw = encode_extras(extras)
        assert raw is not None
        for fields in (
            [b"d", body(), b"n", b"a", b"x", raw],
            [b"d", append_extras(body(), extras)],
            [b"d", append_extras(body(), extras), b"n", b"a"],
        ):
            one = deliver(fields)
            assert (one.job.extras, one.extras, one.timeout_s) == (extras, raw, 2.5)

    def test_the_attempts_of_the_job_count_before_those_of_its_handler(self) -> None:
        retry = RetryOverride(7, None)
        assert deliver([b"d", body(attempt=6, retry=retry), b"n", b"a"]).budget == 7

    def test_each_name_has_its_plan_and_the_one_under_none_takes_the_others(self) -> None:
        mine, rest = plan(), plan()
        by = intake({"mine": mine, None: rest})
        assert deliver([b"d", body(), b"n", b"mine"], by=by).plan is mine
        assert deliver([b"d", body(), b"n", b"yours"], by=by).plan is rest

    def test_more_names_than_are_cached_are_still_distinguished(self) -> None:
        by = intake()
        for number in range(2500):
            name = f"n{number}"
            assert deliver([b"d", body(), b"n", name.encode()], by=by).job.name == name

    def test_an_entry_that_was_deleted_is_skipped(self) -> None:
        found = intake().accept([(b"1-1", None)], Arrival(0.0, NOW_MS))
        assert (found.deliveries, found.refused) == ([], [])

    def test_good_and_bad_entries_keep_their_order(self) -> None:
        entries = [(b"%d-1" % i, [b"d", b"\xc1" if i % 2 else body(i)]) for i in range(10)]
        found = intake().accept(entries, Arrival(0.0, NOW_MS))
        assert [each.job.data for each in found.deliveries] == [0, 2, 4, 6, 8]
        assert [each.entry_id for each in found.refused] == [b"%d-1" % i for i in (1, 3, 5, 7, 9)]


class TestRefused:
    @pytest.mark.parametrize(
        "fields", [[], [b"n", b"greet"], [b"n", b"greet", b"q", b"\xff"], [b"d"]]
    )
    def test_an_entry_without_an_envelope_is_buried_with_all_its_fields(
        self, fields: list[bytes]
    ) -> None:
        dead = refuse(fields).dead
        assert dead.reason is BuryReason.MALFORMED
        assert msgpack.unpackb(dead.entry or b"", raw=True) == fields

    @pytest.mark.parametrize("named", [[], [b"n", b"greet"]])
    @pytest.mark.parametrize(
        "raw", [b"", b"\xc1", b"\x95\xa1j", msgpack.packb(["j", b"\xc1", 1, 0])]
    )
    def test_an_entry_that_cannot_be_decoded_is_buried_with_its_bytes_and_name(
        self, raw: bytes, named: list[bytes]
    ) -> None:
        one = refuse([b"d", raw, *named])
        dead = one.dead
        assert dead.reason is BuryReason.DECODE_FAILED
        assert (dead.envelope, dead.raw_name) == (raw, named[1] if named else b"")
        assert (dead.detail or "").endswith(".")
        assert (one.dead.attempt, dead.worker, dead.buried_at_ms) == (0, "t-1", NOW_MS)

    def test_an_envelope_that_is_too_large_is_not_decoded(self) -> None:
        dead = refuse([b"d", bytes(3001), b"n", b"greet"]).dead
        assert dead.reason is BuryReason.OVERSIZE_PAYLOAD
        assert dead.detail == "it takes 3001 bytes; max_payload is 1000"
        assert len(dead.envelope) == 3001

    def test_the_limit_is_on_the_payload_not_on_the_envelope(self) -> None:
        largest = "x" * 997  # 1000 bytes with its header
        assert deliver([b"d", body(largest), b"n", b"greet"]).job.data == largest
        one = refuse([b"d", body(largest + "x"), b"n", b"greet"])
        assert one.dead.reason is BuryReason.OVERSIZE_PAYLOAD
        assert one.dead.detail == "it takes 1001 bytes; max_payload is 1000"
        assert one.job_id == "j"

    def test_a_name_without_a_handler_is_refused_and_the_known_names_are_listed(self) -> None:
        one = refuse([b"d", body(attempt=1), b"n", b"part"], by=intake({"greet": PLAN}))
        assert one.dead.reason is BuryReason.UNKNOWN_HANDLER
        assert one.dead.detail == "no handler for jobs named 'part'; this worker has 'greet'"
        assert (one.job_id, one.dead.attempt) == ("j", 1)

    @pytest.mark.parametrize("named", [[], [b"n", b"greet"]])
    def test_spent_attempts_are_told_apart_from_crashes(self, named: list[bytes]) -> None:
        spent = refuse([b"d", body(attempt=3), *named])
        assert (spent.dead.reason, spent.dead.attempt) == (BuryReason.RETRIES_EXHAUSTED, 3)
        died = refuse([b"d", body(attempt=1), *named], deliveries=3)
        assert (died.dead.reason, died.dead.attempt) == (BuryReason.CRASHED, 3)
        assert died.dead.detail == "its worker died in attempt 3 of 3"

    @pytest.mark.parametrize(("deadline_ms", "late"), [(NOW_MS, False), (NOW_MS - 1, True)])
    def test_a_deadline_counts_to_the_millisecond(self, deadline_ms: int, late: bool) -> None:  # noqa: FBT001
        raw = encode_extras(Extras(deadline_ms=deadline_ms)) or b""
        one = accept([b"d", body(), b"x", raw])
        assert isinstance(one, BuryEntry) is late
        if isinstance(one, BuryEntry):
            assert one.dead.reason is BuryReason.EXPIRED
            assert one.dead.extras == raw
            assert one.dead.detail == "its deadline passed 1 ms ago"

    def test_extras_that_cannot_be_decoded_bury_the_job_and_are_kept(self) -> None:
        one = refuse([b"d", body(), b"x", b"\xc1"])
        assert one.dead.reason is BuryReason.DECODE_FAILED
        assert (one.dead.extras, one.job_id) == (b"\xc1", "j")
