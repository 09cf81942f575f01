"""`Unique`: its options, its key, and how long it is held."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tampu import OptionError, Unique
from tampu.wire.keys import UniqueUntil
from tampu.wire.payload import encode_payload

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"until": "soon"}, "Invalid until 'soon'"),
        ({"until": 0}, "Invalid until 0"),
        ({"until": -5}, "Invalid until -5"),
        ({"key": ""}, "Invalid key ''"),
        ({"key": 5}, "Invalid key 5"),
        ({"key": "x" * 257}, "Invalid key 'xxx"),
        ({"on_conflict": "ignore"}, "expected one of return, raise, replace"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, object], problem: str) -> None:
    with pytest.raises(OptionError) as raised:
        Unique(**options)  # type: ignore[arg-type]
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    ("until", "kind"),
    [
        ("done", UniqueUntil.DONE),
        ("started", UniqueUntil.STARTED),
        ("1h", UniqueUntil.TIME),
        (5, UniqueUntil.TIME),
    ],
)
def test_until_is_a_moment_or_a_time(until: object, kind: UniqueUntil) -> None:
    assert Unique(until=until).until_kind is kind  # type: ignore[arg-type]


def test_a_key_is_held_for_its_time_or_until_its_job_is_due_and_a_month_longer() -> None:
    assert Unique(until="1h").held_ms(5000) == 3_600_000
    assert Unique(until="done").held_ms(5000) == 30 * DAY_MS + 5000


def test_jobs_of_different_names_never_share_a_key() -> None:
    unique, payload = Unique(key="ada"), encode_payload(None, max_bytes=100)
    assert unique.key_for("mail", payload) == "mail:ada"
    assert unique.key_for("bill", payload) == "bill:ada"


@given(st.dictionaries(st.text(max_size=5), st.integers(-5, 5), max_size=5))
def test_the_order_of_a_dict_does_not_matter(data: dict[str, int]) -> None:
    turned = dict(reversed(data.items()))
    keys = {
        Unique().key_for("mail", encode_payload(each, max_bytes=1000)) for each in (data, turned)
    }
    assert len(keys) == 1


def test_it_is_a_plain_value() -> None:
    unique = Unique(key="ada", until="1h", on_conflict="raise")
    assert pickle.loads(pickle.dumps(unique)) == unique  # noqa: S301 - our own bytes
