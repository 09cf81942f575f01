"""Errors as programs written for chasquimq expect them."""

from collections.abc import Iterator
from contextlib import contextmanager

from tampu.errors import DecodeError, EncodeError, JobFailed, ServerError
from tampu.outcome import Unrecoverable
from tampu.wire.payload import ForeignTypeError


class NotSupportedError(RuntimeError):
    """Something that chasquimq has a name for and does not do."""


class UnrecoverableError(RuntimeError, Unrecoverable):
    """Raised by a handler: no further attempt can help. Made to be subclassed."""


class FailedForGood(JobFailed, TimeoutError):
    """A job was buried whose result was waited for.

    With chasquimq such a wait ends in a `TimeoutError`, so this is one; it comes at once.
    """

    @classmethod
    def told_by(cls, failed: JobFailed) -> "FailedForGood":
        """The same, as an error of this kind."""
        return cls(
            failed.job_id,
            reason=failed.reason,
            error_type=failed.error_type,
            message=failed.message,
            traceback=failed.traceback,
        )


@contextmanager
def as_theirs() -> Iterator[None]:
    """Raise what tampu raises inside as chasquimq would; ours is the cause.

    A server's troubles are a `RuntimeError` that begins with `redis: `, and bytes that cannot be
    read one that begins with `decode: `. A value that MessagePack has no place for is a `TypeError`
    or an `OverflowError`. An option that cannot be is a `ValueError`, as everywhere.
    """
    try:
        yield
    except ServerError as error:
        raise RuntimeError(f"redis: {error}") from error
    except DecodeError as error:
        raise RuntimeError(f"decode: {error}") from error
    except EncodeError as error:
        raise _unwritable(error) from error


def _unwritable(error: EncodeError) -> Exception:
    match error.__context__:
        case OverflowError():
            return OverflowError("Integer value out of range")
        case ForeignTypeError(kind=kind):
            return TypeError(f"can not serialize {kind.__name__!r} object")
        case _:
            return ValueError(f"encode: {error}")
