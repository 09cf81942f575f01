"""A lock of the kernel on a file, for as long as this process lives and no longer."""

import os
import sys
from pathlib import Path
from typing import Self

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
