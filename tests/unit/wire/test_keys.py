"""The keys of guarded resources and of coordinated tasks."""

import pytest
from redis.crc import key_slot

from tampu.errors import OptionError
from tampu.wire.keys import (
    MARKER_VALUE,
    QueueKeys,
    TaskKeys,
    done_member,
    guard_keys,
    held_field,
    must_expire,
    queue_of_key,
    shared_task_keys,
)
from tampu.wire.names import (
    check_job_id,
    check_job_name,
    check_prefix,
    check_queue_name,
    check_schedule_key,
    check_task_id,
    warn_if_reserved,
)
from tests.golden.chasquimq import golden

KEYS = QueueKeys("g")


def test_every_key_of_a_queue_is_spelled_as_at_the_peer() -> None:
    assert KEYS.stream == b"{chasqui:g}:stream"
    assert KEYS.delayed == b"{chasqui:g}:delayed"
    assert KEYS.dead == b"{chasqui:g}:dlq"
    assert KEYS.events == b"{chasqui:g}:events"
    assert KEYS.repeat == b"{chasqui:g}:repeat"
    assert KEYS.promoter_lock == b"{chasqui:g}:promoter:lock"
    assert KEYS.scheduler_lock == b"{chasqui:g}:scheduler:lock"


def test_keys_of_our_own_share_the_hash_tag() -> None:
    assert KEYS.producer("p1") == b"{chasqui:g}:tampu:producer:p1"
    assert KEYS.worker(b"c-1") == b"{chasqui:g}:tampu:worker:c-1"
    assert KEYS.output("1") == b"{chasqui:g}:tampu:out:1"
    assert KEYS.readers("1") == b"{chasqui:g}:tampu:out-readers:1"
    assert KEYS.read_chunks("1") == b"{chasqui:g}:tampu:out-read:1"
    assert KEYS.paused == b"{chasqui:g}:tampu:paused"
    assert KEYS.schedule_wakeup == b"{chasqui:g}:tampu:schedule-bell"


@pytest.mark.parametrize("record", golden("markers"))
def test_a_marker_is_the_captured_one(record: dict[str, str]) -> None:
    assert KEYS.marker(record["job_id"]) == record["key"].encode()
    assert bytes.fromhex(record["value_hex"]) == MARKER_VALUE


@pytest.mark.parametrize("record", golden("indexes"))
def test_an_index_key_is_the_captured_one(record: dict[str, str]) -> None:
    assert KEYS.index(record["job_id"]) == record["key"].encode()


@pytest.mark.parametrize("record", golden("specs"))
def test_a_spec_key_is_the_captured_one(record: dict[str, str]) -> None:
    assert KEYS.spec(record["key"]) == record["redis_key"].encode()


@pytest.mark.parametrize("record", golden("results"))
def test_a_result_key_is_the_captured_one(record: dict[str, str]) -> None:
    assert KEYS.result(record["job_id"]) == record["key"].encode()


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ("stream_entries", KEYS.stream),
        ("delayed_members", KEYS.delayed),
        ("dead_letters", KEYS.dead),
        ("events", KEYS.events),
        ("repeat_keys", KEYS.repeat),
    ],
)
def test_a_fixed_key_is_the_captured_one(section: str, key: bytes) -> None:
    captured = {parameter.values[0]["key"].encode() for parameter in golden(section)}
    assert captured == {key}


def test_lock_keys_are_the_captured_ones() -> None:
    captured = {parameter.values[0]["key"].encode() for parameter in golden("locks")}
    assert captured == {KEYS.promoter_lock, KEYS.scheduler_lock}


def test_indexes_of_many_are_those_of_each() -> None:
    ids = ["a", "ü:發", "01K9Z"]
    assert KEYS.indexes(each.encode() for each in ids) == [KEYS.index(each) for each in ids]


def test_names_are_written_verbatim() -> None:
    keys = QueueKeys("a:b-ü発")
    assert keys.stream == "{chasqui:a:b-ü発}:stream".encode()
    assert keys.spec("t::cron:0 2 * * *:UTC").endswith(b":repeat:spec:t::cron:0 2 * * *:UTC")


def test_queues_are_equal_by_name() -> None:
    assert QueueKeys("a") == QueueKeys("a")
    assert QueueKeys("a") != QueueKeys("b")
    assert repr(QueueKeys("a")) == "QueueKeys(name='a')"


@pytest.mark.parametrize("name", ["q", "a:b", "発送", "x" * 128, "a.b-c_d/e", "ü" * 64])
def test_a_queue_name_that_can_be(name: str) -> None:
    assert check_queue_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "a b",
        "a\tb",
        "a\nb",
        "{a}",
        "a}",
        "a*",
        "a?",
        "[a",
        "a]",
        "\x00",
        "\x7f",
        "\x85",
        "x" * 129,
        "ü" * 65,
        "\ud800",
        "a\xa0b",
        "a\u2028b",
    ],
)
def test_an_invalid_queue_name_is_refused(name: str) -> None:
    with pytest.raises(OptionError) as caught:
        QueueKeys(name)
    assert caught.value.option == "queue"


@pytest.mark.parametrize("job_id", ["1", "welcome:ada", "a b", "{x}*", "発", "x" * 512])
def test_a_job_id_that_can_be(job_id: str) -> None:
    assert check_job_id(job_id) == job_id


@pytest.mark.parametrize("job_id", ["", " ", "\t ", "a\nb", "a\x00", "x" * 513, "\udfff", "\u3000"])
def test_an_invalid_job_id_is_refused(job_id: str) -> None:
    with pytest.raises(OptionError) as caught:
        check_job_id(job_id)
    assert caught.value.option == "job_id"


def test_a_job_name_is_capped_at_256_bytes() -> None:
    assert check_job_name("") == ""
    assert check_job_name("発" * 85 + "x") == "発" * 85 + "x"
    for name in ("x" * 257, "発" * 86, "\ud800"):
        with pytest.raises(OptionError, match="at most 256 bytes"):
            check_job_name(name)


@pytest.mark.parametrize(
    "key", ["digest", "tick::cron:*/5 * * * *:UTC", "::every:60000", "x" * 1024]
)
def test_a_schedule_key_that_can_be(key: str) -> None:
    assert check_schedule_key(key) == key


@pytest.mark.parametrize("key", ["", "a\x00b", "x" * 1025, "\ud800"])
def test_an_invalid_schedule_key_is_refused(key: str) -> None:
    with pytest.raises(OptionError) as caught:
        check_schedule_key(key)
    assert caught.value.option == "key"


@pytest.mark.parametrize("given", [None, 1, b"bytes"])
def test_a_value_that_is_not_text_is_refused_by_name(given: object) -> None:
    for check in (check_queue_name, check_job_id, check_job_name, check_schedule_key):
        with pytest.raises(OptionError):
            check(given)  # type: ignore[arg-type]


def test_a_long_name_is_not_quoted_in_full() -> None:
    with pytest.raises(OptionError) as caught:
        check_job_id("x" * 100_000)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("task_id", ["a", "refresh-cache", "a b:ü*", "ü" * 128, "x" * 256])
def test_a_task_id_that_can_be_is_given_back(task_id: str) -> None:
    assert check_task_id("id", task_id) == task_id


@pytest.mark.parametrize(
    "task_id",
    ["", "  ", "a{b", "a}b", "a\nb", "\x9f", "ü" * 129, "x" * 257, "\ud800", None, 5, b"a"],
)
def test_an_invalid_task_id_is_refused_under_its_option(task_id: str) -> None:
    with pytest.raises(OptionError, match="must be 1 to 256 bytes of text") as caught:
        check_task_id("resource", task_id)
    assert caught.value.option == "resource"


@pytest.mark.parametrize("prefix", ["", "a{", "}", "a\0", "x" * 257, None])
def test_a_prefix_that_would_move_the_hash_tag_is_refused(prefix: str) -> None:
    with pytest.raises(OptionError, match="Invalid prefix "):
        check_prefix(prefix)


@pytest.mark.parametrize(
    "part", ["stream", "delayed", "dlq", "repeat", "events", "tampu:paused", "tampu:flows"]
)
def test_a_queue_is_known_by_each_of_its_lasting_keys(part: str) -> None:
    key = f"{{chasqui:a:b}}:{part}".encode()
    assert queue_of_key(key) == "a:b"
    assert key in QueueKeys("a:b").lasting
    assert not must_expire(key)


@pytest.mark.parametrize(
    "key",
    [
        b"stream",
        b"{chasqui:}:stream",
        b"{chasqui:a}:streams",
        b"{chasqui:a}:result:stream",
        b"{other:a}:stream",
        b"{chasqui:a b}:stream",
        b"{chasqui:\xff}:stream",
    ],
)
def test_no_other_key_proves_a_queue(key: bytes) -> None:
    assert queue_of_key(key) is None


def test_keys_that_are_written_with_an_end_must_have_one() -> None:
    keys = QueueKeys("a")
    for key in (
        keys.marker("1"),
        keys.index("1"),
        keys.result("1"),
        keys.failure("1"),
        keys.producer("1"),
        keys.worker(b"t-1"),
        keys.output("1"),
        keys.readers("1"),
        keys.read_chunks("1"),
        keys.promoter_lock,
        keys.scheduler_lock,
    ):
        assert must_expire(key)
    assert not must_expire(keys.spec("x"))
    assert not must_expire(b"result:1")


@pytest.mark.parametrize("name", ["a", "a-b", "a^b", "a\\b", "ä:1"])
def test_a_queues_pattern_escapes_glob_characters(name: str) -> None:
    assert QueueKeys(name).pattern == (
        QueueKeys(name).tag.replace(b"\\", b"\\\\").replace(b"-", b"\\-").replace(b"^", b"\\^")
        + b":*"
    )


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


def test_an_invalid_prefix_is_refused() -> None:
    with pytest.raises(OptionError, match="Invalid prefix "):
        TaskKeys("{a}:")


def test_a_resource_s_keys_share_its_hash_tag() -> None:
    keys = guard_keys("tampu:guard:", "häuser @ 1")
    tag = "tampu:guard:{häuser @ 1}".encode()
    assert (keys.held, keys.done) == (tag + b":held", tag + b":done")
    assert key_slot(keys.held) == key_slot(keys.done)


def test_a_task_s_course_is_beside_its_plain_state() -> None:
    keys = shared_task_keys(TaskKeys("mine:"), "t:state")
    assert (keys.task, keys.plain) == (b"mine:{t:state}:course", b"mine:{t:state}:state")
    assert key_slot(keys.task) == key_slot(keys.plain)


def test_an_occurrence_is_spelled_by_its_instant() -> None:
    assert (held_field(-5), held_field(0), held_field(None)) == (b"-5", b"0", b"*")
    assert done_member("a@1", 1_794_725_043_642) == b"a@1@1794725043642"


@pytest.mark.parametrize("name", ["", " ", "a}", "{a", "a\x00", "a" * 257, "\ud800"])
def test_names_that_would_move_the_hash_tag_are_refused(name: str) -> None:
    with pytest.raises(OptionError, match="resource"):
        guard_keys("tampu:guard:", name)
    with pytest.raises(OptionError, match="task_id"):
        shared_task_keys(TaskKeys(), name)


@pytest.mark.parametrize("name", ["emails.1", "emails.999", "a.b.42", "über.7"])
def test_names_of_partitions_are_warned_about(name: str) -> None:
    with pytest.warns(FutureWarning, match="reserved for partitions"):
        warn_if_reserved(name)
    assert QueueKeys(name).name == name, "a peer may have such a queue"


@pytest.mark.parametrize("name", ["emails", "emails.v1", "1", "emails.1000", "emails.1a", ".5"])
def test_other_names_are_not(name: str, recwarn: pytest.WarningsRecorder) -> None:
    warn_if_reserved(name)
    assert not recwarn.list
