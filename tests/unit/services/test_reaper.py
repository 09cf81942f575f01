"""Which consumers count as dead."""

import pytest

from tampu.server.scripts.workers import Judgement
from tampu.server.streams import ConsumerInfo
from tampu.services.reaper import LeaseTerms, judge
from tampu.wire.holders import WorkerHeartbeat, encode_heartbeat

OURS = ConsumerInfo(b"t-1", 5, 100)
PEER = ConsumerInfo(b"c-x", 5, 100)
LEASE_MS = 30_000
HEARTBEAT = encode_heartbeat(WorkerHeartbeat(7, "host", 1, 2, 3, LEASE_MS))
TERMS = LeaseTerms(10_000)  # ours; the other worker has its own


def judge_worker(
    left_ms: int, *, is_connected: bool | None, heartbeat: bytes | None = HEARTBEAT
) -> Judgement | None:
    return judge(OURS, heartbeat, left_ms=left_ms, is_connected=is_connected, terms=TERMS)


class TestWithoutHeartbeat:
    def test_a_worker_of_ours_is_dead(self) -> None:
        assert judge_worker(0, is_connected=None, heartbeat=None) == Judgement(idle_ms=0)

    def test_entries_of_a_peer_are_taken_when_idle_for_a_whole_lease(self) -> None:
        verdict = judge(PEER, None, left_ms=0, is_connected=None, terms=TERMS)
        assert verdict == Judgement(idle_ms=10_000)


class TestWithHeartbeat:
    @pytest.mark.parametrize("left_ms", [LEASE_MS, LEASE_MS - 2999, LEASE_MS - 3000, 1])
    @pytest.mark.parametrize("is_connected", [True, None])
    def test_it_is_alive_while_it_is_connected_or_that_is_unknown(
        self,
        left_ms: int,
        is_connected: bool | None,  # noqa: FBT001
    ) -> None:
        assert judge_worker(left_ms, is_connected=is_connected) is None

    @pytest.mark.parametrize(("silent_ms", "dead"), [(0, False), (2999, False), (3000, True)])
    def test_without_its_connection_it_is_dead_after_three_missed_heartbeats(
        self,
        silent_ms: int,
        dead: bool,  # noqa: FBT001
    ) -> None:
        left_ms = LEASE_MS - silent_ms
        verdict = judge_worker(left_ms, is_connected=False)
        assert verdict == (Judgement(heartbeat=HEARTBEAT, left_ms=left_ms) if dead else None)

    def test_a_heartbeat_from_before_the_clock_was_set_back_does_not_count(self) -> None:
        left_ms = LEASE_MS + 3_600_000
        assert judge_worker(left_ms, is_connected=False) == Judgement(
            heartbeat=HEARTBEAT, left_ms=left_ms
        )
        assert judge_worker(left_ms, is_connected=True) is None

    def test_a_heartbeat_that_cannot_be_decoded_is_left_to_expire(self) -> None:
        assert judge_worker(0, is_connected=False, heartbeat=b"\xc1") is None


class TestTerms:
    @pytest.mark.parametrize(
        ("lease_ms", "heartbeat_s", "renew_idle_ms"),
        [(30_000, 1.0, 10_000), (6000, 1.0, 2000), (3000, 0.5, 1000), (600, 0.1, 200)],
    )
    def test_heartbeats_come_well_before_a_lease_ends(
        self, lease_ms: int, heartbeat_s: float, renew_idle_ms: int
    ) -> None:
        terms = LeaseTerms(lease_ms)
        assert terms.heartbeat_s == pytest.approx(heartbeat_s)
        assert terms.suspect_s == pytest.approx(3 * heartbeat_s)
        assert terms.renew_idle_ms == renew_idle_ms
