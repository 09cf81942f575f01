"""Options of a queue."""

import pytest

from tampu import Queue
from tampu.errors import OptionError
from tampu.producer.options import QueueSettings


def test_defaults() -> None:
    defaults = QueueSettings()
    assert defaults.job_rules.max_payload == 1024 * 1024
    assert defaults.job_rules.unique_ms == 3_600_000
    assert defaults.job_rules.max_delay_ms == 30 * 86_400_000
    assert defaults.call_rules.limit_s == 30.0
    assert defaults.call_rules.max_len == 0
    assert defaults.call_rules.copies is None


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
def test_an_invalid_option_is_named_when_the_queue_is_created(option: str, given: object) -> None:
    with pytest.raises(OptionError, match=rf"^Invalid {option} ") as refused:
        Queue("emails", **{option: given})  # type: ignore[arg-type]
    assert refused.value.option == option


@pytest.mark.parametrize("name", ["", "a b", "a{b}", "a*", "a" * 129, "a\n", 5, None, b"x"])
def test_an_invalid_name_is_refused(name: object) -> None:
    with pytest.raises(OptionError, match=r"^Invalid queue "):
        Queue(name)  # type: ignore[arg-type]


def test_creating_a_queue_connects_to_nothing_and_shows_no_secret() -> None:
    queue = Queue("emails", "redis://user:s3cret@127.0.0.1:1/0", credentials=lambda: (None, "x"))
    assert repr(queue) == "<Queue 'emails'>"
    assert queue.name == "emails"


def test_a_queue_that_waits_for_room_sends_small_batches() -> None:
    assert QueueSettings(max_len=100, on_full="wait").jobs_a_call == 25
    assert QueueSettings(max_len=1, on_full="wait").jobs_a_call == 1
    assert QueueSettings(max_len=100, on_full="raise").jobs_a_call == 1000
