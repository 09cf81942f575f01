import pytest

from benchmarks.peers.catalog import FLOW_PEERS
from benchmarks.peers.flow import MISSING, most_in_window


@pytest.mark.parametrize(
    ("starts", "most"),
    [
        ([5.0], 1),
        ([0.0, 0.5, 0.99], 3),
        ([0.0, 1.0, 2.0], 1),  # a window does not contain its end
        ([0.0, 0.9, 1.0, 1.1, 1.8, 3.0], 4),
    ],
)
def test_the_fullest_window_may_begin_at_any_start(starts: list[float], most: int) -> None:
    assert most_in_window(starts, 1.0) == most


def test_what_is_missing_is_listed_for_peers_that_are_compared() -> None:
    assert set(MISSING) <= {peer.name for peer in FLOW_PEERS}
