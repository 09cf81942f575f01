"""`tampu doctor`, `bench` and `server`, and errors about the server."""

import asyncio
import signal
from pathlib import Path

import pytest

from tampu.queue import Queue
from tests.conftest import Start
from tests.contract.cli import COMMAND, environment, tampu
from tests.embedded import end_server, nothing_runs
from tests.servers import RunningServer
from tests.waiting import wait_until

BENCH_KEYS = [
    *("server", "version", "seconds", "add_many_per_s", "add_per_s", "consume_per_s"),
    *("round_trip_p50_ms", "round_trip_p99_ms"),
]


@pytest.mark.every_version
async def test_doctor_on_every_server_fails_if_a_check_fails(start: Start) -> None:
    running = start("--appendonly", "yes")
    good = await tampu("doctor", url=running.url)
    assert (good.code, good.err) == (0, "")
    assert [line.split()[0] for line in good.lines] == ["ok"] * 11
    with running.admin() as admin:
        admin.config_set("maxmemory", "100mb")
        admin.config_set("maxmemory-policy", "allkeys-lru")
    bad = await tampu("doctor", "--json", url=running.url)
    assert (bad.code, list(bad.json)) == (1, ["server", "ok", "findings"])
    assert bad.err == "tampu: 1 of 11 checks failed.\n"
    (failed,) = (each for each in bad.json["findings"] if each["grade"] == "fail")
    assert list(failed) == ["check", "grade", "sentence"]
    assert failed["check"] == "memory"


@pytest.mark.every_version
async def test_bench_on_every_server_measures_and_removes_its_queue(
    running: RunningServer,
) -> None:
    done = await tampu("bench", "--seconds", "1", "--json", url=running.url)
    assert (done.code, done.err, list(done.json)) == (0, "", BENCH_KEYS)
    assert all(done.json[key] > 0 for key in BENCH_KEYS[3:])
    with running.admin() as admin:
        assert admin.dbsize() == 0


async def test_bench_prints_a_page(running: RunningServer) -> None:
    done = await tampu("bench", "--seconds", "1", url=running.url)
    assert done.lines[-1] == "Measured               in one process, 0.25 s each, events off"
    long = await tampu("bench", "--seconds", "61", url=running.url)
    assert long.code == 2
    assert "--seconds" in long.err


async def test_a_server_that_is_unreachable_or_refuses_is_exit_code_3(start: Start) -> None:
    nobody = await tampu("inspect", url="redis://127.0.0.1:1/0")
    assert (nobody.code, nobody.out) == (3, "")
    assert nobody.err.startswith(
        "tampu: Cannot connect to redis://127.0.0.1:1/0 (Connection refused)."
    )
    assert nobody.err.count("\n") == 1
    running = start("--requirepass", "hunter2")
    for url in (running.url, f"redis://:wrong-secret@127.0.0.1:{running.port}/0"):
        denied = await tampu("queue", "ls", "--url", url)
        assert denied.code == 3
        assert f"127.0.0.1:{running.port}/0 denied access (" in denied.err
        assert denied.err.count("\n") == 1
        assert "secret" not in denied.err
    good = await tampu("queue", "ls", "--url", f"redis://:hunter2@127.0.0.1:{running.port}/0")
    assert good.code == 0


async def test_wrong_usage_is_one_sentence_and_exit_code_2() -> None:
    said = {
        ("inspekt",): "No such command 'inspekt'. Did you mean 'inspect'?",
        ("inspect", "a", "b"): "b",
        ("dead", "ls"): "Missing argument 'QUEUE'. Try: tampu dead ls --help",
        ("inspect", "--jsn"): "--jsn",
        ("inspect", "a b"): "Invalid QUEUE 'a b': must be 1 to 128 bytes of text",
        ("inspect", "--url", "nonsense"): "Invalid --url 'nonsense': expected redis://",
        ("watch", "--every", "0s"): "Invalid --every '0s': must be at least one millisecond",
        (
            "server",
            "--url",
            "redis://localhost",
        ): "Invalid --url 'redis://localhost:6379/0': expected embedded:DIRECTORY here",
        ("server",): "Invalid TAMPU_URL 'redis://127.0.0.1:1/0': expected embedded:DIRECTORY here",
        ("server", "here", "--url", "embedded:x"): "--url cannot be combined with a directory.",
    }
    for typed, sentence in said.items():
        done = await tampu(*typed, url="redis://127.0.0.1:1/0")
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), typed
        assert done.err.startswith("tampu: ")
        assert sentence in done.err


async def test_an_error_names_where_a_wrong_url_was_given() -> None:
    variable = await tampu("inspect", url="nonsense")
    assert variable.err.startswith("tampu: Invalid TAMPU_URL 'nonsense': expected redis://")
    before = await tampu("--url", "nonsense", "inspect", url="redis://127.0.0.1:1/0")
    assert before.err.startswith("tampu: Invalid --url 'nonsense': expected redis://")
    assert (variable.code, before.code) == (2, 2)


async def test_server_runs_the_embedded_server_until_a_signal(tmp_path: Path) -> None:
    home = tmp_path / "data"
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *("server", str(home)),
        env=environment(None),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), 30)
        assert line.decode() == f"The server runs at embedded:{home}\n"
        async with Queue("a", f"embedded:{home}") as queue:
            await queue.add("x")
        listed = await tampu("queue", "ls", "--json", "--url", f"embedded:{home}")
        assert [each["queue"] for each in listed.json["queues"]] == ["a"]
        process.send_signal(signal.SIGTERM)
        out, err = await asyncio.wait_for(process.communicate(), 30)
        assert (process.returncode, err) == (0, b"")
        assert out.decode().startswith("and at unix://")
        await wait_until(lambda: nothing_runs(home), within=60, sentence="the server has ended")
    finally:
        if process.returncode is None:
            process.kill()
        end_server(home)
