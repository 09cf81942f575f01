"""The errors of chasquimq, and the translation of tampu's errors to them."""

from collections.abc import Iterator
from contextlib import contextmanager

from tampu.errors import DecodeError, EncodeError, JobFailed, ServerError
from tampu.outcome import Unrecoverable
from tampu.wire.payload import ForeignTypeError

__all__ = ["NotSupportedError", "UnrecoverableError"]


class NotSupportedError(RuntimeError):
    """An operation that chasquimq names but does not support."""


class UnrecoverableError(RuntimeError, Unrecoverable):
    """Raise this, or a subclass, in a handler to bury the job without further attempts."""


class JobFailedTimeout(JobFailed, TimeoutError):
    """The job whose result a caller waits for was buried.

    In chasquimq the wait ends with a `TimeoutError`, so this is one. It is raised at once.
    """

    @classmethod
    def from_failure(cls, failed: JobFailed) -> "JobFailedTimeout":
        """The same failure as an error of this class."""
        return cls(
            failed.job_id,
            reason=failed.reason,
            error_type=failed.error_type,
            message=failed.message,
            traceback=failed.traceback,
        )


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise tampu's errors as chasquimq would; the original error is the cause.

    A `ServerError` becomes a `RuntimeError` that starts with `redis: `, a `DecodeError` one that
    starts with `decode: `. A value that MessagePack cannot hold is a `TypeError` or an
    `OverflowError`. An `OptionError` is a `ValueError` already.
    """
    try:
        yield
    except ServerError as error:
        raise RuntimeError(f"redis: {error}") from error
    except DecodeError as error:
        raise RuntimeError(f"decode: {error}") from error
    except EncodeError as error:
        raise _translate_encode_error(error) from error


def _translate_encode_error(error: EncodeError) -> Exception:
    match error.__context__:
        case OverflowError():
            return OverflowError("Integer value out of range")
        case ForeignTypeError(kind=kind):
            return TypeError(f"can not serialize {kind.__name__!r} object")
        case _:
            return ValueError(f"encode: {error}")
