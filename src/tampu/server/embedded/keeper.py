"""Keeps one embedded server: starts it, waits until nobody uses it any more, ends it.

A process of its own, run by `embedded.join` as `python -I -S keeper.py` in the data directory, on
the standard library alone: it must not end with the process that happened to start it, and it
should cost little. It never polls. Three locks of the kernel say who lives, and the kernel frees
them however a process dies; no pid and no leftover file is ever trusted:

    users.lock   shared by every process that uses the server; exclusive while the server goes down
    keeper.lock  exclusive, held by the keeper: one keeper per directory
    server.lock  exclusive, held by the server: none is started beside one that still lives
"""

import os
import signal
import sys
import threading
import time

if sys.platform != "win32":
    import fcntl
USERS_LOCK = "users.lock"
KEEPER_LOCK = "keeper.lock"
SERVER_LOCK = "server.lock"
SOCKET = "server.sock"
LOG = "server.log"
LINGER_S = 1.0  # scripts that run one after the other find the server still up
END_LIMIT_S = 10.0
_PR_SET_PDEATHSIG = 1
# Paths are relative, because the server runs in the data directory: a deep one would not fit into
# the 104 bytes that a socket's address has.
_OPTIONS = {
    "port": ["0"],
    "unixsocket": [SOCKET],
    "unixsocketperm": ["700"],
    "dir": ["."],
    "appendonly": ["yes"],
    "appendfsync": ["everysec"],
    "aof-load-truncated": ["yes"],
    "save": [""],
    "maxmemory-policy": ["noeviction"],
    "shutdown-on-sigterm": ["nosave", "force"],
    "daemonize": ["no"],
}


def main(keeper_lock: int, server_lock: int, binary: str) -> None:
    """Start the server and stay until it has ended. Takes two locked files and the server's path.

    Returns at once in the process that was started; the keeper proper is its child, so that it
    belongs to nobody and leaves no zombie with its starter.
    """
    if os.fork():
        return
    fcntl.fcntl(keeper_lock, fcntl.F_SETFD, fcntl.FD_CLOEXEC)  # the server must not keep it
    os.umask(0o077)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    users = os.open(USERS_LOCK, os.O_RDWR)
    server = start(binary)
    os.close(server_lock)  # from here on it says that the server lives, not that we do
    threading.Thread(target=end_when_unused, args=(users, server), daemon=True).start()
    os.waitpid(server, 0)


def start(binary: str) -> int:
    """Run the server as a child, both its outputs into our standard error; gives its pid."""
    keeper = os.getpid()
    server = os.fork()
    if server:
        return server
    try:
        end_with(keeper)
        os.dup2(2, 1)
        options = [part for name, values in _OPTIONS.items() for part in (f"--{name}", *values)]
        os.execv(binary, [binary, *options])  # noqa: S606 - the binary of the installed wheel
    except OSError as exc:
        os.write(2, f"{binary} cannot be run: {exc.strerror}\n".encode())
    finally:
        os._exit(127)


def end_with(keeper: int) -> None:
    """Have the kernel send this process SIGTERM when the keeper dies, and keep that over exec.

    Only Linux can. Elsewhere a server without a keeper lives until the next join, which ends it.
    """
    if sys.platform != "linux":
        return
    try:
        import ctypes  # noqa: PLC0415 - needed in the child only, and not in every Python
    except ImportError:
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGTERM))
    if os.getppid() != keeper:  # it died before the kernel knew of our wish
        os._exit(1)


def end_when_unused(users: int, server: int) -> None:
    """End the server once its last user has gone; `users` stays locked until we are gone too."""
    wait_until_unused(users)
    os.kill(server, signal.SIGTERM)
    time.sleep(END_LIMIT_S)
    # Stuck, in a script that never ends for example. What it answered is in its file already.
    os.kill(server, signal.SIGKILL)


def wait_until_unused(users: int) -> None:
    """Return with the exclusive lock on `users`, after nobody held it at both ends of the linger.

    Who comes later waits for that lock, and finds no server half gone.
    """
    while True:
        fcntl.flock(users, fcntl.LOCK_EX)
        fcntl.flock(users, fcntl.LOCK_UN)
        time.sleep(LINGER_S)
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        return


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    os._exit(0)
