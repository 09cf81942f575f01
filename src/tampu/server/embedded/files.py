"""Files of the embedded server: its private data directory and its locks."""

import hashlib
import os
import stat
import sys
import tempfile
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Self

from tampu.errors import EmbeddedFailed

if sys.platform != "win32":
    import fcntl


class FileLock:
    """A lock that was taken; the kernel frees it when it is closed or its process dies.

    A forked child does not keep it: its copy of the file is closed right after the fork, and
    closing a copy leaves the parent's lock alone. A program that is given the file keeps it.
    """

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd
        _locks.add(self)

    @classmethod
    def shared(cls, path: Path) -> Self | None:
        """A lock that many may have; None while somebody has the exclusive one."""
        return cls._take(path, fcntl.LOCK_SH)

    @classmethod
    def exclusive(cls, path: Path) -> Self | None:
        """A lock that one may have; None while somebody has any."""
        return cls._take(path, fcntl.LOCK_EX)

    @classmethod
    def _take(cls, path: Path, kind: int) -> Self | None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        return cls(fd)

    def close(self) -> None:
        """Free the lock. May be called twice."""
        try:
            _locks.remove(self)  # one step, so that of two threads one closes the file
        except KeyError:
            return
        os.close(self.fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


_locks: set[FileLock] = set()


def _close_inherited() -> None:
    for lock in list(_locks):
        lock.close()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_close_inherited)


_ADDRESS_LIMIT = 103  # bytes in a socket's address on macOS; Linux takes four more
_PRIVATE = 0o700
_OTHERS = 0o077


def prepare(directory: Path, *, marks: Collection[str]) -> None:
    """Make the directory if it is missing, and see that its owner alone gets in.

    One that others may read is closed to them only if it is empty or holds one of the `marks`.
    """
    if directory.exists() and not directory.is_dir():
        raise EmbeddedFailed(str(directory), "that is a file, not a directory")
    if not directory.exists():
        directory.mkdir(_PRIVATE, parents=True, exist_ok=True)
        # Payloads have no business in a repository, and `.tampu` lies where programs are started.
        (directory / ".gitignore").write_text("*\n")
    state = directory.stat()
    if state.st_uid != os.geteuid():
        raise EmbeddedFailed(str(directory), f"it belongs to another user (uid {state.st_uid})")
    if state.st_mode & _OTHERS:
        _close_to_others(directory, marks)


def _close_to_others(directory: Path, marks: Collection[str]) -> None:
    # embedded:/tmp or embedded:. must not take a directory away from what else lives in it.
    names = os.listdir(directory)
    if names and not any(mark in names for mark in marks):
        problem = "it holds other files and is open to others; name one of its own, or chmod 700 it"
        raise EmbeddedFailed(str(directory), problem)
    directory.chmod(_PRIVATE)


def address_of(socket: Path) -> Path:
    """A path to the socket that is short enough to connect to.

    The socket always lies in the data directory, where nothing tidies it away and other containers
    see it too. A deep directory is reached through a symbolic link in a short, private one; the
    link holds no state, and the next join makes it again.
    """
    if _fits(socket):
        return socket
    directory = socket.parent
    name = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    for place in _short_places():
        address = place / name / socket.name
        if _fits(address) and _is_private(place):
            _link(place / name, directory)
            return address
    problem = f"its path is longer than {_ADDRESS_LIMIT} bytes and no private short one was found"
    raise EmbeddedFailed(str(directory), problem)


def _fits(address: Path) -> bool:
    return len(os.fsencode(address)) <= _ADDRESS_LIMIT


def _short_places() -> list[Path]:
    own = f"tampu-{os.geteuid()}"
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    places = [Path(runtime) / "tampu"] if runtime else []
    return [*places, Path(tempfile.gettempdir()) / own, Path("/tmp") / own]  # noqa: S108 - checked


def _is_private(place: Path) -> bool:
    """True if it is a directory, and no link, that only we can change: nobody plants one there."""
    try:
        place.mkdir(_PRIVATE, exist_ok=True)
        state = place.lstat()
    except OSError:
        return False
    ours = state.st_uid == os.geteuid() and not state.st_mode & _OTHERS
    return ours and stat.S_ISDIR(state.st_mode)


def _link(link: Path, directory: Path) -> None:
    if link.is_symlink() and link.readlink() == directory:
        return
    fresh = link.with_name(f"{link.name}.{os.getpid()}.{threading.get_ident()}")
    fresh.symlink_to(directory)
    fresh.replace(link)
