"""The keeper of an embedded server: starts it, waits for its last user, stops it.

`embedded.join` runs it as `python -I -S keeper.py` in the data directory. It is a process of its
own, so that the server outlives the process that started it, and it uses the standard library only,
so that it costs little. It never polls. Three file locks say who is alive. The kernel releases them
however a process dies, so pids and leftover files do not matter:

    users.lock   shared by every process that uses the server; exclusive while the server stops
    keeper.lock  exclusive, held by the keeper: one keeper per directory
    server.lock  exclusive, held by the server: no second one starts while it runs
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
LINGER_S = 1.0  # programs that run one after the other share the server
STOP_LIMIT_S = 10.0
_PR_SET_PDEATHSIG = 1
# Paths are relative to the data directory: the address of a socket has room for 104 bytes only.
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
    """Start the server and wait until it has stopped; takes two locked files and the binary.

    Returns at once in the process that was started. The keeper itself is a child of it, which has
    no parent then and leaves no zombie.
    """
    if os.fork():
        return
    fcntl.fcntl(keeper_lock, fcntl.F_SETFD, fcntl.FD_CLOEXEC)  # the server must not inherit it
    os.umask(0o077)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    users = os.open(USERS_LOCK, os.O_RDWR)
    server = start(binary)
    os.close(server_lock)  # from now on only the server holds it
    threading.Thread(target=stop_when_unused, args=(users, server), daemon=True).start()
    os.waitpid(server, 0)


def start(binary: str) -> int:
    """Run the server as a child that writes to our standard error; returns its pid."""
    keeper = os.getpid()
    server = os.fork()
    if server:
        return server
    try:
        stop_with(keeper)
        os.dup2(2, 1)
        options = [part for name, values in _OPTIONS.items() for part in (f"--{name}", *values)]
        os.execv(binary, [binary, *options])  # noqa: S606 - the binary of the installed wheel
    except OSError as exc:
        os.write(2, f"Cannot run {binary}: {exc.strerror}\n".encode())
    finally:
        os._exit(127)


def stop_with(keeper: int) -> None:
    """Make the kernel send SIGTERM to this process when the keeper dies, even after exec.

    Only Linux can do that. Elsewhere the server runs until the next join, which stops it.
    """
    if sys.platform != "linux":
        return
    try:
        import ctypes  # noqa: PLC0415 - needed in the child only, and not in every Python
    except ImportError:
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGTERM))
    if os.getppid() != keeper:  # it died before the call above
        os._exit(1)


def stop_when_unused(users: int, server: int) -> None:
    """Stop the server after its last user; `users` stays locked until the keeper exits."""
    wait_until_unused(users)
    os.kill(server, signal.SIGTERM)
    time.sleep(STOP_LIMIT_S)
    # It is stuck, for example in an endless script. Its file has every write that it confirmed.
    os.kill(server, signal.SIGKILL)


def wait_until_unused(users: int) -> None:
    """Lock `users` exclusively, after nobody held it at the start and at the end of the linger.

    A process that comes later waits for that lock, so it never meets a server that is stopping.
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
