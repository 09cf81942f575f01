"""`tampu watch` in a real terminal, and where there is none."""

import json
import signal
import subprocess

from tests.contract.cli import COMMAND, environment, tampu
from tests.contract.workers import QUEUE, Calls, Harness
from tests.servers import RunningServer
from tests.terminal import terminal

KEYS = [
    *("at", "queue", "waiting", "active", "delayed", "dead", "schedules", "workers"),
    *("added_per_s", "done_per_s", "failed_per_s"),
]
OTHER_SCREEN, OWN_SCREEN = "\x1b[?1049h", "\x1b[?1049l"


async def test_watch_fills_a_terminal_until_q(running: RunningServer, harness: Harness) -> None:
    await harness.queue.add_each("x", range(7))
    with terminal("watch", "--every", "100ms", "--no-color", url=running.url) as screen:
        screen.until(OTHER_SCREEN)
        first = screen.until("Press q to leave.")
        screen.until(f"{QUEUE}         7")
        await harness.queue.add("x")
        screen.until(f"{QUEUE}         8")
        screen.type(b"x")
        screen.type(b"q")
        rest = screen.until(OWN_SCREEN)
    assert "\x1b[2m" in first
    assert "\x1b[3" not in first + rest


async def test_watch_draws_again_when_the_terminal_changes_its_size(
    running: RunningServer, harness: Harness
) -> None:
    await harness.queue.add("x")
    with terminal("watch", "--every", "1h", url=running.url) as screen:
        screen.until(f"{QUEUE}         1")
        screen.until("Z  Press q to leave.")
        screen.resize(120)
        screen.until(" " * 100)
        screen.type(b"q")
        screen.until(OWN_SCREEN)


async def test_watch_shows_the_workers_of_a_single_queue_until_ctrl_c(
    running: RunningServer, harness: Harness
) -> None:
    worker = await harness.start_worker(Calls())
    with terminal("watch", QUEUE, "--every", "100ms", url=running.url) as screen:
        screen.until(worker.id)
        screen.type(b"\x03")
        screen.until(OWN_SCREEN)


async def test_watch_continues_after_an_outage_of_the_server(
    running: RunningServer, harness: Harness
) -> None:
    await harness.queue.add("x")
    with terminal("watch", QUEUE, "--every", "50ms", url=running.url) as screen:
        screen.until(f"{QUEUE}         1")
        running.pause()
        try:
            screen.until("Lost the connection")
        finally:
            running.resume()
        screen.until("Z  Press q to leave.")
        screen.type(b"Q")
        screen.until(OWN_SCREEN)


async def test_watch_prints_a_line_for_each_queue_and_update_without_a_terminal(
    running: RunningServer, harness: Harness
) -> None:
    await harness.queue.add_each("x", range(2))
    told = await tampu("watch", "--every", "50ms", "--count", "2", url=running.url)
    assert (told.code, told.err, len(told.lines)) == (0, "", 2)
    assert " work waiting=2 active=0 delayed=0 dead=0 added/s=" in told.lines[1]
    lines = await tampu("watch", QUEUE, "--count", "1", "--json", url=running.url)
    assert [list(json.loads(line)) for line in lines.lines] == [KEYS]


def test_watch_ends_with_exit_code_0_on_a_signal(running: RunningServer) -> None:
    with running.admin() as admin:
        admin.xadd("{chasqui:work}:stream", {"d": "x"})
    for told in (signal.SIGINT, signal.SIGTERM):
        with subprocess.Popen(
            [*COMMAND, "watch"],
            env=environment(running.url),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None and process.stderr is not None
            assert QUEUE in process.stdout.readline().decode()
            process.send_signal(told)
            assert (process.wait(30), process.stderr.read()) == (0, b"")
