import pytest

from tampu import Queue
from tampu.errors import OptionError
from tampu.producer.options import QueueSettings
from tampu.util.options import at_least, parse_options


def test_an_unknown_option_is_named_with_those_that_are_known() -> None:
    with pytest.raises(
        OptionError, match=r"^Invalid maxlen 5 .*Queue, which takes max_len, on_full"
    ):
        parse_options(QueueSettings, "Queue", {"maxlen": 5})


@pytest.mark.parametrize("given", [0, -1, True, 1.0, "1", None])
def test_a_whole_number_is_one(given: object) -> None:
    with pytest.raises(OptionError, match=r"^Invalid count "):
        at_least("count", given, 1)  # type: ignore[arg-type]


def test_the_defaults_are_those_of_the_documentation() -> None:
    defaults = QueueSettings()
    assert defaults.rules.max_payload == 1024 * 1024
    assert defaults.rules.unique_ms == 3_600_000
    assert defaults.rules.max_delay_ms == 30 * 86_400_000
    assert defaults.calls.limit_s == 30.0
    assert defaults.calls.max_len == 0
    assert defaults.calls.copies is None


@pytest.mark.parametrize(
    ("option", "given"),
    [
        ("max_len", 0),
        ("max_len", -1),
        ("max_len", 1.5),
        ("max_len", True),
        ("on_full", "drop"),
        ("on_full", None),
        ("on_full", ["raise"]),
        ("max_payload", 0),
        ("max_payload", 64 * 1024 * 1024 + 1),
        ("max_payload", None),
        ("durability", "disk"),
        ("durability", None),
        ("unique_for", 0),
        ("unique_for", "an hour"),
        ("max_delay", -1),
        ("max_delay", None),
        ("time_limit", 0),
        ("time_limit", 600.001),
        ("time_limit", float("nan")),
        ("events", 1),
        ("events", "yes"),
        ("group", ""),
        ("group", None),
        ("retries", 3),
    ],
)
def test_an_option_that_cannot_be_is_named_when_the_queue_is_made(
    option: str, given: object
) -> None:
    with pytest.raises(OptionError, match=rf"^Invalid {option} ") as refused:
        Queue("emails", **{option: given})  # type: ignore[arg-type]
    assert refused.value.option == option


@pytest.mark.parametrize("name", ["", "a b", "a{b}", "a*", "a" * 129, "a\n", 5, None, b"x"])
def test_a_name_that_no_queue_can_have_is_refused(name: object) -> None:
    with pytest.raises(OptionError, match=r"^Invalid queue "):
        Queue(name)  # type: ignore[arg-type]


def test_making_a_queue_touches_nothing_and_shows_no_secret() -> None:
    queue = Queue("emails", "redis://user:s3cret@127.0.0.1:1/0", credentials=lambda: (None, "x"))
    assert repr(queue) == "<Queue 'emails'>"
    assert queue.name == "emails"


def test_who_waits_for_room_takes_it_in_small_parts() -> None:
    assert QueueSettings(max_len=100, on_full="wait").jobs_a_call == 25
    assert QueueSettings(max_len=1, on_full="wait").jobs_a_call == 1
    assert QueueSettings(max_len=100, on_full="raise").jobs_a_call == 1000
