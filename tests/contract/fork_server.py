"""Runs commands in forks of a process that has imported the command line already.

The interpreter with all imports takes a third of a second to start, a fork a few milliseconds. Run
as a module this is that process; `ForkServer` starts it and asks it for commands.
"""

import atexit
import gc
import importlib
import json
import os
import pkgutil
import runpy
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from tests.servers import ROOT

PROGRAM: Final = "tampu"
_LONGEST_REQUEST: Final = 1 << 18
_STREAMS: Final = 3


class ForkServer:
    """The process, started when it is first needed; it ends with the one that started it."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    def run(
        self, args: Sequence[str], env: dict[str, str], streams: Sequence[int], *, limit_s: float
    ) -> int:
        """Run a command here with these standard streams; its exit code."""
        request = json.dumps({"args": args, "env": env, "cwd": os.getcwd()}).encode()
        status, theirs = socket.socketpair()
        with status:
            with theirs:
                files = [*streams, theirs.fileno()]
                socket.send_fds(self._connection(), [request], files)
            status.settimeout(limit_s)
            pid = int.from_bytes(_receive(status), "big")
            try:
                return int.from_bytes(_receive(status), "big")
            except TimeoutError:
                os.kill(pid, 9)
                raise

    def _connection(self) -> socket.socket:
        if self._socket is None:
            self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LONGEST_REQUEST)
            with theirs:
                process = subprocess.Popen(
                    [sys.executable, "-m", __name__, str(theirs.fileno())],
                    cwd=ROOT,
                    pass_fds=[theirs.fileno()],
                )
            atexit.register(process.wait)
            atexit.register(self._socket.close)
        return self._socket


def _receive(status: socket.socket) -> bytes:
    received = status.recv(4, socket.MSG_WAITALL)
    assert received, "the command was not started"
    return received


def _serve(requests: socket.socket) -> None:
    """Fork for each request; returns in the command, and when nobody can send any more."""
    while True:
        request, files, _, _ = socket.recv_fds(requests, _LONGEST_REQUEST, _STREAMS + 1)
        if not request:
            return
        if os.fork() == 0:
            requests.close()
            _run(json.loads(request), files)
            return
        for each in files:
            os.close(each)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _run(request: dict[str, Any], files: list[int]) -> None:
    """Fork once more: the child is the command, and this process waits for its exit code."""
    *streams, status = files
    pid = os.fork()
    if pid:
        os.write(status, pid.to_bytes(4, "big"))
        _, ended = os.waitpid(pid, 0)
        os.write(status, (os.waitstatus_to_exitcode(ended) & 0xFF).to_bytes(4, "big"))
        os._exit(0)
    os.close(status)
    for number, each in enumerate(streams):
        os.dup2(each, number)
        os.close(each)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
        for number, mode in enumerate("rww")
    )
    sys.argv, sys.path[0] = [PROGRAM, *request["args"]], request["cwd"]
    runpy.run_module(PROGRAM, run_name="__main__", alter_sys=True)


def main() -> None:
    """Import every module of the command line, and serve."""
    package = importlib.import_module(PROGRAM)
    for module in pkgutil.walk_packages(package.__path__, f"{PROGRAM}."):
        # What is for Django wants settings, and no command needs it.
        if not module.name.endswith("__main__") and not module.name.startswith(
            f"{PROGRAM}.django."
        ):
            importlib.import_module(module.name)
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        _serve(requests)


if __name__ == "__main__":
    main()
