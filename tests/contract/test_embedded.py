"""The embedded server: one per directory, while any process uses it."""

import asyncio
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from tampu.errors import EmbeddedFailed
from tampu.server.connect import Server, connect
from tampu.server.embedded import files, keeper
from tampu.server.embedded.files import FileLock
from tampu.server.embedded.server import join
from tampu.server.lane import Lane
from tests.embedded import (
    answers,
    client_of,
    end_server,
    has,
    is_free,
    kill,
    leave,
    nothing_runs,
    popen,
    put,
    said,
    server_pid,
    starts_of,
)
from tests.waiting import block_until, stays, wait_until

KEY = b"{chasqui:embedded}:stream"
A_WHILE_S = keeper.LINGER_S * 1.5
# The default handler ends it on Ctrl-C: Python loses one that comes just before a blocking read.
USER = """
import signal, sys, redis
from tampu.server.embedded.server import join
signal.signal(signal.SIGINT, signal.SIG_DFL)
handle = join(sys.argv[1])
with redis.Redis(unix_socket_path=str(handle.socket)) as client:
    for number in range(int(sys.argv[3])):
        client.rpush("written", f"{sys.argv[2]}-{number}")
    print(client.info("server")["run_id"], flush=True)
sys.stdin.read()
"""
# The parent exits when its child has printed something; the child stays until its input ends.
FORKING_USER = """
import os, sys
from tampu.server.embedded.server import join
handle = join(sys.argv[1])
reader, writer = os.pipe()
if os.fork():
    os.read(reader, 1)
    os._exit(0)
if sys.argv[2] == "joins":
    own = join(sys.argv[1])
    handle.release()
print(os.getpid(), flush=True)
os.write(writer, b".")
sys.stdin.read()
os._exit(0)
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "data"
    yield directory
    end_server(directory)


@pytest.fixture
def processes(home: Path) -> Iterator[ExitStack]:
    # Takes `home`, so that the users exit before the server is stopped.
    with ExitStack() as stack:
        yield stack


class RunUser(Protocol):
    def __call__(
        self, home: Path, name: str = "user", *, writes: int = 0
    ) -> subprocess.Popen[str]: ...


@pytest.fixture
def run_user(processes: ExitStack) -> RunUser:
    def run(home: Path, name: str = "user", *, writes: int = 0) -> subprocess.Popen[str]:
        return popen(processes, USER, str(home), name, str(writes))

    return run


# Starting and joining


def test_a_missing_directory_is_created(home: Path) -> None:
    with join(home / "deeper") as handle:
        assert has(handle, "nothing") is False
        assert handle.directory == home / "deeper"
        assert handle.socket == home / "deeper" / keeper.SOCKET
    end_server(home / "deeper")


def test_a_running_server_is_joined(home: Path, run_user: RunUser) -> None:
    run_id = said(run_user(home))
    with join(str(home)), client_of(home) as client:
        assert client.info("server")["run_id"] == run_id
    assert starts_of(home) == 1


def test_a_symbolic_link_names_the_same_server(home: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(home)
    with join(home) as direct, join(tmp_path / "link") as linked:
        assert linked.directory == direct.directory
    assert starts_of(home) == 1


def test_eight_concurrent_processes_share_one_server(home: Path, run_user: RunUser) -> None:
    users = [run_user(home, f"user{number}", writes=50) for number in range(8)]
    assert len({said(user) for user in users}) == 1
    with client_of(home) as client:
        written = set(client.lrange("written", 0, -1))
    assert written == {f"user{user}-{number}" for user in range(8) for number in range(50)}
    assert starts_of(home) == 1


def test_eight_concurrent_threads_share_one_server(home: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        handles = list(threads.map(lambda _: join(home), range(8)))
    for handle in handles[1:]:
        handle.release()
        handle.release()  # the second call must not release the hold of another handle
    stays(lambda: answers(home), during=A_WHILE_S, sentence="the last handle keeps the server")
    handles[0].release()
    assert starts_of(home) == 1


def test_it_has_a_private_socket_and_no_port(home: Path) -> None:
    home.mkdir(mode=0o755)
    with join(home), client_of(home) as client:
        assert home.stat().st_mode & 0o777 == 0o700
        assert (home / keeper.SOCKET).stat().st_mode & 0o777 == 0o700
        assert (home / keeper.LOG).stat().st_mode & 0o777 == 0o600
        settings = {
            "port": "0",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "aof-load-truncated": "yes",
            "maxmemory-policy": "noeviction",
            "save": "",
        }
        assert client.config_get(*settings) == settings


def test_a_path_too_long_for_a_socket_works(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = home / ("d" * 100) / ("e" * 100)
    with tempfile.TemporaryDirectory(prefix="run") as runtime:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        with join(deep) as handle:
            put(handle, "key")
            assert handle.socket.is_relative_to(runtime)
            assert handle.socket.resolve() == deep / keeper.SOCKET
            end_server(deep, handle.socket)
        with join(deep) as handle:
            assert has(handle, "key")
            end_server(deep, handle.socket)


def test_a_short_directory_that_others_can_write_to_is_not_used(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tampu").mkdir()
    (tmp_path / "tampu").chmod(0o777)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with tempfile.TemporaryDirectory(prefix="tmp") as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        with join(home / ("d" * 100)) as handle:
            assert handle.socket.is_relative_to(short)
            end_server(handle.directory, handle.socket)


def test_a_long_path_without_a_short_directory_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [home / ("x" * 100), Path("/dev/null/below")]
    monkeypatch.setattr(files, "_short_directories", lambda: places)
    with pytest.raises(EmbeddedFailed, match="longer than 103 bytes; use a shorter directory"):
        join(home / ("d" * 100))


# Stopping


def test_it_stops_after_its_last_user_has_exited(home: Path, run_user: RunUser) -> None:
    user = run_user(home)
    said(user)
    leave(user)
    block_until(lambda: nothing_runs(home), within=60, sentence="server and keeper have exited")
    assert not (home / keeper.SOCKET).exists()


def test_it_stops_after_its_last_user_was_killed(home: Path, run_user: RunUser) -> None:
    user = run_user(home)
    said(user)
    user.kill()
    block_until(lambda: nothing_runs(home), within=60, sentence="server and keeper have exited")


def test_it_runs_while_one_of_two_users_lives(home: Path, run_user: RunUser) -> None:
    first, second = run_user(home, "first"), run_user(home, "second")
    assert said(first) == said(second)
    first.kill()
    stays(lambda: answers(home), during=A_WHILE_S, sentence="the other user keeps the server")
    leave(second)
    block_until(lambda: nothing_runs(home), within=60, sentence="server and keeper have exited")


def test_ctrl_c_in_the_starter_does_not_stop_it_for_others(home: Path, run_user: RunUser) -> None:
    starter = run_user(home)
    said(starter)
    with join(home):
        os.killpg(starter.pid, signal.SIGINT)
        starter.wait(timeout=20)
        stays(
            lambda: answers(home),
            during=A_WHILE_S,
            sentence="the server outlives its starter's Ctrl-C",
        )
    assert starts_of(home) == 1


def test_a_forked_child_does_not_keep_the_server(home: Path, processes: ExitStack) -> None:
    parent = popen(processes, FORKING_USER, str(home), "only forks")
    child = int(said(parent))
    processes.callback(kill, child)
    parent.wait(timeout=20)
    block_until(
        lambda: nothing_runs(home), within=60, sentence="the server stopped while the child lives"
    )
    os.kill(child, 0)  # raises if it does not


def test_a_forked_child_that_joins_has_a_hold_of_its_own(home: Path, processes: ExitStack) -> None:
    parent = popen(processes, FORKING_USER, str(home), "joins")
    child = int(said(parent))
    processes.callback(kill, child)
    parent.wait(timeout=20)
    stays(lambda: answers(home), during=A_WHILE_S, sentence="the child keeps the server")
    kill(child)
    block_until(lambda: nothing_runs(home), within=60, sentence="server and keeper have exited")


def test_a_process_that_joins_while_it_stops_gets_a_new_server(home: Path) -> None:
    home.mkdir(mode=0o700)
    stopping = FileLock.exclusive(home / keeper.USERS_LOCK)
    assert stopping is not None
    with ThreadPoolExecutor(1) as threads:
        joining = threads.submit(join, home)
        stays(lambda: not (home / keeper.LOG).exists(), during=0.2, sentence="no server is started")
        stopping.close()
        with joining.result(timeout=10):
            assert answers(home)


def test_users_that_join_while_it_stops_lose_nothing(tmp_path: Path) -> None:
    def come_and_go(number: int) -> bool:
        home = tmp_path / str(number)
        with join(home) as handle:
            put(handle, "key")
        time.sleep(keeper.LINGER_S + number / 500)  # before, while and after it stops
        with join(home) as handle:
            found = has(handle, "key")
        end_server(home)
        return found

    with ThreadPoolExecutor(24) as threads:
        assert all(threads.map(come_and_go, range(-4, 20)))


# Connecting


async def answers_ping(server: Server) -> bool:
    async with server, await Lane.open(server, KEY) as lane:
        return await lane.call("PING") == b"PONG"


def is_unused(home: Path) -> bool:
    return home.exists() and is_free(home / keeper.USERS_LOCK)


async def test_an_embedded_url_starts_a_server(home: Path) -> None:
    server = await connect(f"embedded:{home}")
    assert server.name == f"embedded:{home}"
    assert await answers_ping(server)


async def test_without_url_and_variable_it_is_in_the_working_directory(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home.parent)
    monkeypatch.delenv("TAMPU_URL", raising=False)
    try:
        assert await answers_ping(await connect())
        assert (home.parent / ".tampu" / ".gitignore").read_text() == "*\n"
    finally:
        end_server(home.parent / ".tampu")


async def test_a_killed_server_is_started_again_by_lanes(home: Path) -> None:
    async with await connect(f"embedded:{home}") as server:
        async with await Lane.open(server, KEY) as lane, await Lane.open(server, KEY) as other:
            await lane.call("SET", b"a", b"kept")
            os.kill(server_pid(home), signal.SIGKILL)
            for each in (lane, other):
                assert await each.send(b"GET a\r\n", repeatable=True) == b"kept"
    assert is_unused(home)


async def test_a_cancelled_connect_keeps_no_hold(home: Path) -> None:
    connecting = asyncio.create_task(connect(f"embedded:{home}"))
    await asyncio.sleep(0)
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    await wait_until(lambda: is_unused(home), within=60, sentence="the hold is released")


async def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EmbeddedFailed, match="a file, not a directory"):
        await connect(f"embedded:{tmp_path}/file")
