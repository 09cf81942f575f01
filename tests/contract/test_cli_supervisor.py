"""`tampu worker` with several processes, and with --reload."""

import json
import os
import pty
import resource
import signal
import subprocess
from pathlib import Path

import pytest

from tampu import Queue
from tests.contract.cli import COMMAND, environment
from tests.contract.test_cli_worker import get_json
from tests.contract.worker_command import SHOP, SOON, WorkerCommand, is_alive, run_worker
from tests.servers import RunningServer, free_port
from tests.waiting import block_until, wait_until


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


def until_all(worker: WorkerCommand, port: int) -> None:
    """Wait until all processes run."""
    worker.until_up()
    worker.until(lambda: get_json(f"http://127.0.0.1:{port}/ready")[0] == 200, "all work")


async def test_a_killed_process_is_replaced_and_jobs_still_run(
    running: RunningServer, home: Path
) -> None:
    port = free_port()
    with run_worker(running, home, "-p", "2", "--health-port", str(port)) as worker:
        until_all(worker, port)
        assert "Processes  2" in worker.out
        before = set(worker.children())
        os.kill(min(before), signal.SIGKILL)
        worker.until_logged("ended with signal SIGKILL; starting another in 0.25 s")
        worker.until(lambda: len(set(worker.children()) - {min(before)}) == 2, "there are two")
        assert max(before) in worker.children()
        async with Queue("default", running.url) as queue:
            found = await (await queue.add("who")).result(SOON)
            assert found in worker.children()
        assert worker.stop() == 0


async def test_starting_a_process_is_tried_again_while_the_system_has_no_room(
    running: RunningServer, home: Path
) -> None:
    with run_worker(running, home, "-p", "1") as worker:
        worker.until_up()
        before = resource.prlimit(worker.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, (3, before[1]))
        os.kill(worker.children()[0], signal.SIGKILL)
        worker.until_logged("cannot start a worker process: Too many open files", times=2)
        worker.signal(signal.SIGHUP)
        worker.until_logged("a new worker process did not start; keeping the old ones")
        resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, before)
        async with Queue("default", running.url) as queue:
            assert await (await queue.add("who")).result(SOON) in worker.children()
        assert worker.stop() == 0


async def test_the_processes_stop_by_themselves_when_their_supervisor_is_killed(
    running: RunningServer, home: Path
) -> None:
    with run_worker(running, home, "--processes", "2") as worker:
        worker.until_up()
        worker.until(lambda: len(worker.children()) == 2, "there are two")
        children = worker.children()
        os.kill(worker.pid, signal.SIGKILL)
        worker.process.wait()
        block_until(
            lambda: not any(map(is_alive, children)), within=SOON, sentence="no child is left"
        )


async def test_a_second_signal_is_passed_on_to_the_processes(
    running: RunningServer, home: Path
) -> None:
    runs = home / "runs"
    with run_worker(running, home, "-p", "2", "--grace", "10m") as worker:
        async with Queue("default", running.url) as queue:
            await queue.add("nap", {"path": str(runs)})
            await wait_until(runs.exists, within=SOON, sentence="it runs")
            worker.signal(signal.SIGTERM)
            worker.until_logged("tampu.worker: stopping")
            worker.signal(signal.SIGTERM)
            assert worker.wait() == 0
            counts = await queue.counts()
            assert (counts.waiting, counts.active) == (1, 0)


def test_ctrl_c_in_a_terminal_is_one_signal_to_the_processes(
    running: RunningServer, home: Path
) -> None:
    ours, theirs = pty.openpty()
    with (home / "worker.err").open("wb") as err:
        process = subprocess.Popen(
            [*COMMAND, "worker", "shop:app", "--processes", "2"],
            cwd=home,
            env=environment(running.url) | {"TERM": "xterm"},
            stdin=theirs,
            stdout=theirs,
            stderr=err,
            start_new_session=True,
        )
    os.close(theirs)
    seen = b""
    try:
        while b"Processes" not in seen:
            seen += os.read(ours, 65_536)
        os.killpg(process.pid, signal.SIGINT)  # what a terminal does, to its whole group
        assert process.wait(SOON) == 0
        assert "second signal" not in (home / "worker.err").read_text()
    finally:
        process.kill()
        process.wait()
        os.close(ours)


async def test_sighup_replaces_the_processes_one_by_one_with_the_new_code(
    running: RunningServer, home: Path
) -> None:
    port = free_port()
    with run_worker(running, home, "-p", "2", "--health-port", str(port)) as worker:
        until_all(worker, port)
        before = worker.children()
        (home / "shop.py").write_text(SHOP.replace("a + b", "a * 100"))
        worker.signal(signal.SIGHUP)
        worker.until_logged("replaced all worker processes")
        assert not set(before) & set(worker.children())
        async with Queue("default", running.url) as queue:
            assert await (await queue.add("add", {"a": 2})).result(SOON) == 200
        assert worker.stop() == 0


async def test_sighup_with_broken_code_keeps_the_old_processes(
    running: RunningServer, home: Path
) -> None:
    port = free_port()
    with run_worker(running, home, "-p", "2", "--health-port", str(port)) as worker:
        until_all(worker, port)
        before = sorted(worker.children())
        (home / "shop.py").write_text("def oops(:\n")
        worker.signal(signal.SIGHUP)
        worker.until_logged("a new worker process did not start; keeping the old ones")
        worker.until(lambda: sorted(worker.children()) == before, "the old ones are there")
        assert get_json(f"http://127.0.0.1:{port}/ready")[0] == 200
        assert worker.stop() == 0


async def test_burst_stops_when_every_process_has_stopped(
    running: RunningServer, home: Path
) -> None:
    async with Queue("default", running.url) as queue:
        jobs = await queue.add_each("add", [{"a": n} for n in range(100)])
        with run_worker(running, home, "-p", "2", "--burst", "--json") as worker:
            assert worker.wait() == 0
            assert json.loads(worker.out)["processes"] == 2
        assert [await queue.job(job.id).result(1) for job in jobs] == [n + 1 for n in range(100)]


async def test_a_recycled_process_is_replaced_at_once(running: RunningServer, home: Path) -> None:
    with run_worker(running, home, "-p", "1", "--max-jobs", "1") as worker:
        worker.until_up()
        pids: set[object] = set()
        async with Queue("default", running.url) as queue:
            for _ in range(20):  # about one each: the next may come before it has stopped reading
                pids.add(await (await queue.add("who")).result(SOON))
                if len(pids) == 3:
                    break
        assert len(pids) == 3
        assert worker.stop() == 0
    assert "starting another" not in worker.err


async def test_reload_restarts_after_a_change_and_waits_while_code_is_broken(
    running: RunningServer, home: Path
) -> None:
    shop = home / "shop.py"
    with run_worker(running, home, "--reload") as worker:
        worker.until_up()
        async with Queue("default", running.url) as queue:
            assert await (await queue.add("add", {"a": 2})).result(SOON) == 3
            change(worker, shop, SHOP.replace("a + b", "a * 100"), times=1)
            worker.until_logged("tampu.worker: stopped")
            assert await (await queue.add("add", {"a": 2})).result(SOON) == 200
            change(worker, shop, "def oops(:\n", times=2)
            worker.until_logged("SyntaxError")
            worker.until_logged("waiting for a file to change")
            shop.write_text(SHOP.replace("a + b", "a * 1000"))
            assert await (await queue.add("add", {"a": 2})).result(SOON) == 2000
        assert worker.stop() == 0


def change(worker: WorkerCommand, shop: Path, source: str, *, times: int) -> None:
    """Change a file and wait until the worker has noticed it."""
    shop.write_text(source)
    worker.until_logged("restarting after changes in shop.py", times=times)


async def test_reload_waits_while_code_is_broken_from_the_start(
    running: RunningServer, home: Path
) -> None:
    (home / "shop.py").write_text("1 / 0\n")
    with run_worker(running, home, "--reload", "-p", "2") as worker:
        worker.until_logged("ZeroDivisionError")
        worker.until_logged("waiting for a file to change")
        (home / "shop.py").write_text(SHOP)
        worker.until_up()
        worker.until(lambda: len(worker.children()) == 2, "both work")
        assert worker.stop() == 0
    assert worker.err.count("raised ZeroDivisionError") == 1


async def test_an_error_that_stops_the_first_process_is_shown_once(
    running: RunningServer, home: Path
) -> None:
    (home / "shop.py").write_text("1 / 0\n")
    with run_worker(running, home, "-p", "3") as worker:
        assert worker.wait() == 2
    assert worker.err.count("it raised ZeroDivisionError") == 1
    assert worker.out == ""
