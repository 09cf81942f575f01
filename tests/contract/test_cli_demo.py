"""`tampu demo` on every server, with and without a terminal."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest

from tests.contract.cli import COMMAND, environment, tampu
from tests.embedded import end_server
from tests.servers import RunningServer
from tests.terminal import terminal

# The fewest orders that show everything: the seventh has the last wrong address.
FEW = ("demo", "--orders", "7")
MANY = ("demo", "--orders", "500")  # more than the test waits for
NO_DASHBOARD = """
import sys
sys.modules["uvicorn"] = None
from tampu.cli.main import main
main()
"""
CTRL_C = b"\x03"
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    end_server(tmp_path / ".tampu")


@pytest.mark.every_version
async def test_retries_delays_a_schedule_and_dead_letters_on_every_server(
    running: RunningServer,
) -> None:
    done = await tampu(*FEW, "--json", url=running.url)
    assert (done.code, done.err) == (0, "")
    told = done.json
    tasks = {each.pop("task"): each for each in told["tasks"]}
    assert tasks["take_order"] == {"runs": 7, "done": 7, "retried": 0, "dead": 0}
    assert tasks["confirm"] == {"runs": 10, "done": 5, "retried": 3, "dead": 2}
    assert tasks["remind"]["done"] == told["reminders"] == 2
    assert tasks["write_invoice"] == {"runs": 8, "done": 7, "retried": 1, "dead": 0}
    assert tasks["report_backlog"]["done"] >= 1
    assert tasks["charge"] == {"runs": 8, "done": 7, "retried": 1, "dead": 0}
    done_of = {name: each["done"] for name, each in tasks.items()}
    assert (done_of["pack"], done_of["ship"], done_of["tell_customer"]) == (20, 7, 7)
    flows = (await tampu("flow", "ls", "tampu-demo-orders", "--json", url=running.url)).json
    assert [each["state"] for each in flows["flows"]] == ["done"] * 7
    assert [(each["task"], each["reason"]) for each in told["dead"]] == [
        ("confirm", "unrecoverable"),
        ("confirm", "retries_exhausted"),
    ]
    assert told["reminders_late_max_ms"] >= 0, "no reminder runs early"

    left = (await tampu("inspect", "--json", url=running.url)).json["queues"]
    assert {each["queue"]: (each["dead"], each["schedules"]) for each in left} == {
        "tampu-demo-emails": (2, 0),
        "tampu-demo-invoices": (0, 0),
        "tampu-demo-orders": (0, 0),
    }


def test_a_second_demo_is_refused_while_one_runs_and_starts_fresh_after_it(home: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, *MANY], cwd=home, env=environment(None), stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout is not None
        try:
            while "1 dead" not in (line := first.stdout.readline()):
                assert line, "it has ended"
            second = _run(home, "demo")
            assert (second.returncode, second.stdout) == (1, "")
            assert second.stderr.startswith(
                f"tampu: Another demo runs on embedded:{home}/.tampu, or was killed "
            )
            first.send_signal(signal.SIGINT)
            assert first.wait(30) == 130
        finally:
            first.kill()
    third = json.loads(_run(home, "demo", "--orders", "1", "--json").stdout)
    assert (third["orders"], third["dead"]) == (1, [])


def test_without_a_terminal_it_prints_lines(home: Path) -> None:
    done = _run(home, *FEW)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    for part in (
        "A small shop on Valkey 9.",
        "s  confirm failed; attempt 2 follows in ",
        "s  remind ran after its delay, ",
        "s  a schedule fired\n",
        "confirm               10     5        3     2\n",
        "confirm: the mail server does not answer (retries_exhausted)\n",
        "tampu dead ls tampu-demo-emails\n",
    ):
        assert part in done.stdout


def test_in_a_terminal_it_draws_and_leaves_the_summary(home: Path) -> None:
    with terminal(*FEW, url=None, cwd=home) as screen:
        screen.until(HIDE_CURSOR)
        screen.until("1 of 7 orders")
        screen.until("7 of 7 orders")
        screen.until(SHOW_CURSOR)
        summary = screen.until("tampu dead ls tampu-demo-emails")
    assert "7 orders handled in " in summary


def test_in_a_terminal_it_goes_on_until_ctrl_c_with_the_dashboard_beside_it(home: Path) -> None:
    with terminal("demo", url=None, cwd=home) as screen:
        printed = screen.until("Press Ctrl-C to stop.")
        found = re.search(r"The dashboard is at (http://127\.0\.0\.1:\d+/)", printed)
        assert found is not None
        while int(screen.until(" orders in ").split()[-3].rpartition("K")[2]) <= 24:
            pass
        assert "tampu-demo-invoices" in httpx.get(found[1], timeout=30).text
        screen.type(CTRL_C)
        assert " orders handled in " in screen.until("tampu dead ls tampu-demo-emails")
    with pytest.raises(httpx.ConnectError):
        httpx.get(found[1])


def test_it_stops_by_itself_after_a_time(home: Path) -> None:
    done = _run(home, "demo", "--for", "1s", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert told["seconds"] >= 1
    assert 1 <= told["orders"] < 24


def test_without_the_extra_it_says_what_to_install(home: Path) -> None:
    done = _run(home, "demo", "--orders", "1", command=(sys.executable, "-c", NO_DASHBOARD))
    assert (done.returncode, done.stderr) == (0, "")
    assert "To see it in a browser: pip install 'tampu[dashboard]'\n" in done.stdout
    assert "1 order handled in " in done.stdout


async def test_orders_and_a_time_exclude_each_other() -> None:
    done = await tampu("demo", "--orders", "1", "--for", "1s")
    assert (done.code, done.err) == (2, "tampu: Give --orders or --for, not both.\n")


async def test_an_unreachable_server_is_one_sentence() -> None:
    done = await tampu("demo", url="redis://127.0.0.1:1/0")
    assert (done.code, done.out, done.err.count("\n")) == (3, "", 1)


async def test_orders_are_a_number(running: RunningServer) -> None:
    done = await tampu("demo", "--orders", "0", url=running.url)
    assert (done.code, done.err.count("\n")) == (2, 1)


def _run(
    home: Path, *args: str, command: Sequence[str] = COMMAND
) -> "subprocess.CompletedProcess[str]":
    """Run a command in an empty directory: on an embedded server of its own."""
    return subprocess.run(
        [*command, *args],
        cwd=home,
        env=environment(None),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
