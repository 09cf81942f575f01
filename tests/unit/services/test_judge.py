"""Who counts as gone."""

import pytest

from tampu.server.scripts.workers import Judgement
from tampu.server.streams import ConsumerInfo
from tampu.services.reaper import LeaseTerms, judge
from tampu.wire.holders import WorkerHeartbeat, encode_heartbeat

OURS = ConsumerInfo(b"t-1", 5, 100)
PEER = ConsumerInfo(b"c-x", 5, 100)
LEASE_MS = 30_000
MARK = encode_heartbeat(WorkerHeartbeat(7, "host", 1, 2, 3, LEASE_MS))
TERMS = LeaseTerms(10_000)  # of who judges; the one that is judged has others


def judged(
    left_ms: int, *, is_connected: bool | None, mark: bytes | None = MARK
) -> Judgement | None:
    return judge(OURS, mark, left_ms=left_ms, is_connected=is_connected, terms=TERMS)


class TestWithoutAMark:
    def test_a_worker_of_ours_is_gone(self) -> None:
        assert judged(0, is_connected=None, mark=None) == Judgement(idle_ms=0)

    def test_a_peer_is_judged_entry_by_entry_after_a_whole_lease(self) -> None:
        verdict = judge(PEER, None, left_ms=0, is_connected=None, terms=TERMS)
        assert verdict == Judgement(idle_ms=10_000)


class TestWithAMark:
    @pytest.mark.parametrize("left_ms", [LEASE_MS, LEASE_MS - 2999, LEASE_MS - 3000, 1])
    @pytest.mark.parametrize("is_connected", [True, None])
    def test_while_it_is_connected_or_nobody_knows_it_lives(
        self,
        left_ms: int,
        is_connected: bool | None,  # noqa: FBT001
    ) -> None:
        assert judged(left_ms, is_connected=is_connected) is None

    @pytest.mark.parametrize(("silent_ms", "gone"), [(0, False), (2999, False), (3000, True)])
    def test_without_its_connection_it_is_gone_after_three_beats_of_its_own(
        self,
        silent_ms: int,
        gone: bool,  # noqa: FBT001
    ) -> None:
        left_ms = LEASE_MS - silent_ms
        verdict = judged(left_ms, is_connected=False)
        assert verdict == (Judgement(mark=MARK, left_ms=left_ms) if gone else None)

    def test_a_mark_from_before_the_clock_was_turned_back_is_no_sign_of_life(self) -> None:
        left_ms = LEASE_MS + 3_600_000
        assert judged(left_ms, is_connected=False) == Judgement(mark=MARK, left_ms=left_ms)
        assert judged(left_ms, is_connected=True) is None

    def test_a_mark_that_cannot_be_read_is_left_to_run_out(self) -> None:
        assert judged(0, is_connected=False, mark=b"\xc1") is None


class TestTerms:
    @pytest.mark.parametrize(
        ("lease_ms", "beat_s", "renew_idle_ms"),
        [(30_000, 1.0, 10_000), (6000, 1.0, 2000), (3000, 0.5, 1000), (600, 0.1, 200)],
    )
    def test_signs_of_life_come_well_before_a_lease_ends(
        self, lease_ms: int, beat_s: float, renew_idle_ms: int
    ) -> None:
        terms = LeaseTerms(lease_ms)
        assert terms.beat_s == pytest.approx(beat_s)
        assert terms.doubt_s == pytest.approx(3 * beat_s)
        assert terms.renew_idle_ms == renew_idle_ms
