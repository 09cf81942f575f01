import pytest
from redis.crc import key_slot

from tampu.errors import OptionError
from tampu.wire.keys import TaskKeys


def test_a_task_s_state_lies_under_its_id_as_a_hash_tag() -> None:
    key = TaskKeys().state("a b:ü*")
    assert key == "tampu:task:{a b:ü*}:state".encode()
    assert key_slot(key) == key_slot("a b:ü*".encode())


def test_a_prefix_of_one_s_own_takes_the_place_of_the_default() -> None:
    assert TaskKeys("app1:").state("t") == b"app1:{t}:state"


def test_a_peer_s_states_are_looked_for_under_both_of_its_prefixes() -> None:
    assert TaskKeys().peer_states("t") == [
        b"scheduler:valkey:job-state:t",
        b"scheduler:job-state:t",
    ]


def test_a_prefix_of_one_s_own_has_no_peers() -> None:
    keys = TaskKeys("app1:")
    assert keys.peer_prefixes == ()
    assert keys.peer_states("t") == []


def test_a_prefix_that_cannot_be_is_refused() -> None:
    with pytest.raises(OptionError, match="Invalid prefix "):
        TaskKeys("{a}:")
