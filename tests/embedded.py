"""What the tests of the embedded server share: looking at it, using it, ending it."""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import redis

from tampu.server.embedded import keeper
from tampu.server.embedded.files import FileLock
from tampu.server.embedded.server import EmbeddedServer
from tests.waiting import block_until


def client_of(home: Path) -> redis.Redis:
    return redis.Redis(unix_socket_path=str(home / keeper.SOCKET), decode_responses=True)


def pid_behind(address: Path) -> int:
    with redis.Redis(unix_socket_path=str(address)) as client:
        return int(client.info("server")["process_id"])


def server_pid(home: Path) -> int:
    return pid_behind(home / keeper.SOCKET)


def parent_of(pid: int) -> int:
    command = ["/bin/ps", "-o", "ppid=", "-p", str(pid)]
    return int(subprocess.run(command, check=True, capture_output=True).stdout)


def kill_keeper(home: Path, server: int) -> None:
    """Return when the keeper is dead; the server may still be on its way."""
    os.kill(parent_of(server), signal.SIGKILL)
    block_until(
        lambda: is_free(home / keeper.KEEPER_LOCK), within=60, sentence="the keeper is dead"
    )


def answers(home: Path) -> bool:
    try:
        with client_of(home) as client:
            return bool(client.ping())
    except redis.ConnectionError:
        return False


def is_free(lock: Path) -> bool:
    if not lock.parent.exists():
        return True
    taken = FileLock.exclusive(lock)
    if taken is not None:
        taken.close()
    return taken is not None


def nothing_runs(home: Path) -> bool:
    return is_free(home / keeper.KEEPER_LOCK) and is_free(home / keeper.SERVER_LOCK)


def starts_of(home: Path) -> int:
    return (home / keeper.LOG).read_text().count("Ready to accept connections")


def put(handle: EmbeddedServer, key: str) -> None:
    with redis.Redis(unix_socket_path=str(handle.socket)) as client:
        client.set(key, "kept")


def has(handle: EmbeddedServer, key: str) -> bool:
    with redis.Redis(unix_socket_path=str(handle.socket)) as client:
        return bool(client.get(key) == b"kept")


def end_server(home: Path, address: Path | None = None) -> None:
    """Kill the server by its id; its keeper follows. No test leaves a process behind."""
    if nothing_runs(home):
        return
    with suppress(redis.RedisError, OSError):
        os.kill(pid_behind(address or home / keeper.SOCKET), signal.SIGKILL)
    block_until(lambda: nothing_runs(home), within=60, sentence="the test left nothing running")


def popen(stack: ExitStack, script: str, *args: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", script, *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    stack.enter_context(process)
    stack.callback(process.kill)
    return process


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    assert line, "the user process ended before it was ready"
    return line


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def leave(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.wait(timeout=10)
