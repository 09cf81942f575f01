"""Standard streams that are closed, full, not read, or of an old locale."""

import json
import subprocess
from pathlib import Path
from typing import Any

from tampu import EventKind
from tests.contract.cli import COMMAND, LIMIT_S, environment
from tests.contract.worker_command import SHOP
from tests.contract.workers import KEYS, QUEUE, Boom, Harness
from tests.servers import RunningServer
from tests.terminal import terminal
from tests.waiting import wait_until

CLOSED = {
    '"$@" inspect >&-': 0,
    '"$@" inspect nope 2>&-': 1,
    f'"$@" queue purge {QUEUE} <&-': 1,
    '"$@" inspect <&- >&- 2>&-': 0,
}
FULL = "The system reported an error: [Errno 28] No space left on device."


def shell(script: str, running: RunningServer, **more: str) -> "subprocess.CompletedProcess[bytes]":
    """Run a line of a shell in which "$@" is tampu."""
    return subprocess.run(
        ["/bin/sh", "-c", script, "sh", *COMMAND],
        env=environment(running.url) | more,
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )


async def test_closed_streams_do_no_harm(running: RunningServer, harness: Harness) -> None:
    await harness.queue.add("x")
    for script, code in CLOSED.items():
        done = shell(script, running)
        assert (done.returncode, b"Traceback" in done.stderr) == (code, False), done.stderr


async def test_a_full_disk_is_one_sentence(running: RunningServer, harness: Harness) -> None:
    await harness.queue.add("x")
    for command in ("inspect", "--help", f"job show {QUEUE} nope --json"):
        done = shell(f'"$@" {command} > /dev/full', running)
        assert (done.returncode, done.stderr.decode()) == (1, f"tampu: {FULL}\n")


async def test_a_command_ends_when_its_reader_stops(
    running: RunningServer, harness: Harness
) -> None:
    await harness.queue.add("x")
    for command in ("watch --every 50ms", "inspect --json"):
        done = shell(f'"$@" {command} | head -1', running)
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.count(b"\n") == 1


async def test_a_worker_runs_even_if_nothing_can_be_printed(
    running: RunningServer, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    for script in ('"$@" worker shop --burst | true', '"$@" worker shop -p 1 --burst > /dev/full'):
        done = shell(f"cd {tmp_path} && {script}", running)
        assert (done.returncode, b"Traceback" in done.stderr) == (0, False)
        assert b"tampu.worker: stopping (nothing left to do)" in done.stderr


async def test_a_character_that_the_locale_lacks_is_escaped(
    running: RunningServer, harness: Harness
) -> None:
    await harness.queue.add("größe", "漢", delay="1h", job_id="a")
    shown = shell(f'"$@" job show {QUEUE} a', running, PYTHONIOENCODING="ascii")
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert rb"gr\xf6\xdfe" in shown.stdout
    told = shell(f'"$@" job show {QUEUE} a --json', running, PYTHONIOENCODING="ascii")
    found = json.loads(told.stdout.decode("ascii"))
    assert (found["name"], found["data"]) == ("größe", "漢")


async def test_the_error_of_a_job_cannot_control_the_terminal(
    running: RunningServer, harness: Harness
) -> None:
    await harness.start_worker(Boom(ValueError("\x1b[2J\x9b31m")), attempts=1, store_results=True)
    job = await harness.queue.add("x")

    async def is_dead() -> bool:
        written: Any = harness.admin.xrange(KEYS.events)
        kinds = {fields[b"e"] for _, fields in written}
        return (await harness.queue.counts()).dead == 1 and EventKind.DEAD.value.encode() in kinds

    await wait_until(is_dead, within=60, sentence="the job is a dead letter, with its events")
    for command in ("dead ls", "events", f"job show {QUEUE} {job.id} --all #", "dead ls --json"):
        done = shell(f'"$@" {command} {QUEUE}', running)
        assert done.returncode == 0, done.stderr
        assert b"\\u001b[2J" in done.stdout, command
        assert not {"\x1b", "\x9b"} & set(done.stdout.decode())
    failed = shell(f'"$@" job wait {QUEUE} {job.id}', running)
    assert (failed.returncode, failed.stderr.count(b"\n")) == (1, 1)
    assert b"\\u001b[2J" in failed.stderr


async def test_ctrl_c_at_a_question_ends_the_command(
    running: RunningServer, harness: Harness
) -> None:
    await harness.queue.add("x")
    with terminal("queue", "purge", QUEUE, url=running.url, code=130) as screen:
        screen.until("[y/N] ")
        screen.type(b"\x03")
    assert (await harness.queue.counts()).waiting == 1
