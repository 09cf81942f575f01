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
    """A file lock that we hold; the kernel releases it when it is closed or the process dies.

    A forked child does not inherit it: its copy of the file is closed right after the fork, which
    does not affect the parent's lock. A program that is passed the file descriptor holds it too.
    """

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd
        _locks.add(self)

    @classmethod
    def shared(cls, path: Path) -> Self | None:
        """A lock that several processes can hold; None while one holds it exclusively."""
        return cls._take(path, fcntl.LOCK_SH)

    @classmethod
    def exclusive(cls, path: Path) -> Self | None:
        """A lock that one process can hold; None while any other holds it."""
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
        """Release the lock. May be called twice."""
        try:
            _locks.remove(self)  # atomic, so that only one of two threads closes the file
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


_ADDRESS_LIMIT = 103  # bytes in the address of a socket on macOS; Linux has four more
_PRIVATE = 0o700
_OTHERS = 0o077


def prepare(directory: Path, *, own_files: Collection[str]) -> None:
    """Create the directory if it is missing, and make it private to its owner.

    The permissions of a directory change only if it is empty or contains one of `own_files`.
    """
    if directory.exists() and not directory.is_dir():
        raise EmbeddedFailed(str(directory), "it is a file, not a directory")
    if not directory.exists():
        directory.mkdir(_PRIVATE, parents=True, exist_ok=True)
        # `.tampu` is often inside of a repository, and payloads must not be committed.
        (directory / ".gitignore").write_text("*\n")
    state = directory.stat()
    if state.st_uid != os.geteuid():
        raise EmbeddedFailed(str(directory), f"it belongs to another user (uid {state.st_uid})")
    if state.st_mode & _OTHERS:
        _make_private(directory, own_files)


def _make_private(directory: Path, own_files: Collection[str]) -> None:
    # embedded:/tmp or embedded:. must not lock others out of a directory that they use.
    names = os.listdir(directory)
    if names and not any(name in names for name in own_files):
        problem = (
            "the directory contains other files and other users can read it; "
            "use a new directory, or run chmod 700 on this one"
        )
        raise EmbeddedFailed(str(directory), problem)
    directory.chmod(_PRIVATE)


def address_of(socket: Path) -> Path:
    """A path to the socket that is short enough to connect to.

    The socket is always in the data directory, where no cleanup job removes it and other containers
    see it. If its path is too long, a symbolic link in a short, private directory leads to it. The
    link holds no state; the next join creates it again.
    """
    if _fits(socket):
        return socket
    directory = socket.parent
    name = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    for place in _short_directories():
        address = place / name / socket.name
        if _fits(address) and _is_private(place):
            _link(place / name, directory)
            return address
    problem = (
        f"the path of its socket is longer than {_ADDRESS_LIMIT} bytes; use a shorter directory"
    )
    raise EmbeddedFailed(str(directory), problem)


def _fits(address: Path) -> bool:
    return len(os.fsencode(address)) <= _ADDRESS_LIMIT


def _short_directories() -> list[Path]:
    own = f"tampu-{os.geteuid()}"
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    places = [Path(runtime) / "tampu"] if runtime else []
    return [*places, Path(tempfile.gettempdir()) / own, Path("/tmp") / own]  # noqa: S108 - checked


def _is_private(place: Path) -> bool:
    """Whether it is a real directory that only we can change."""
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
