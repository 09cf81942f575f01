"""Commands as bytes."""

import pytest

from tampu.server.protocol import Ids, pack


@pytest.mark.parametrize(
    "ids",
    [
        [b"1-0"],
        [b"1794740436318-0", b"1794740436318-1"],
        [b"1-0", b"1-1", b"1-2"] * 300,
    ],
)
def test_ids_of_one_length_are_packed_like_arguments(ids: list[bytes]) -> None:
    assert Ids(ids).pack_after("XDEL", b"key") == pack("XDEL", b"key", *ids)


def test_ids_of_several_lengths_are_all_packed() -> None:
    ids = [b"%d-%d" % (1794740436318, number) for number in (8, 9, 10, 11, 100, 7)]
    packed = Ids(ids).pack_after("XACK", b"key", b"group")
    arguments = packed.split(b"\r\n")
    assert arguments[0] == b"*9"
    assert sorted(arguments[8:-1:2]) == sorted(ids)
    assert all(
        int(size[1:]) == len(text)
        for size, text in zip(arguments[1:-1:2], arguments[2::2], strict=True)
    )


def test_ids_packed_once_serve_several_commands() -> None:
    ids = Ids([b"1-1", b"1-2"])
    assert ids.pack_after("XDEL", b"k") == pack("XDEL", b"k", b"1-1", b"1-2")
    assert ids.pack_after("XACK", b"k", b"g") == pack("XACK", b"k", b"g", b"1-1", b"1-2")
