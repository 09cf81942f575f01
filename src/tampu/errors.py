"""The one error tree.

    TampuError
    ├── OptionError             an option, name or URL is invalid
    ├── ArgumentError           a task's argument is missing, unknown or of the wrong type
    ├── EncodeError             a payload cannot be written as MessagePack, or is too large
    ├── DecodeError             bytes from the server are malformed
    ├── MissingExtra            an optional dependency is not installed
    ├── JobCancelled            the job was cancelled before it could finish
    ├── JobFailed               the job was buried; describes what its last attempt raised
    ├── JobExists               another job has the unique key
    ├── ResultTimeout           no result arrived in time
    ├── StreamError             the stream of a job cannot be followed
    │   ├── NoStream            the job has none
    │   ├── StreamGap           the chunks that come next are no longer kept
    │   └── StreamRestarted     another attempt of the job has begun
    ├── WrongContext            the call is not possible here or now
    ├── StoreFailed             a file with task states cannot be read or written
    ├── OutboxFailed            an outbox in a database cannot be used
    └── ServerError             something went wrong with the server or the connection to it
        ├── ServerUnreachable   no connection could be made; nothing was sent
        ├── ConnectionLost      the connection broke during a call; its outcome is unknown
        ├── TlsFailed           the server was reached, but the TLS handshake failed
        ├── AccessDenied        wrong user, wrong password or a missing permission
        ├── ServerTooOld        the server lacks a command that tampu needs
        ├── EmbeddedFailed      the embedded server did not start
        ├── Closed              used after it was closed; nothing was sent
        ├── NotDurable          added, but the requested durability was not confirmed
        └── CommandRefused      the server refused the command; nothing was done
            ├── ServerBusy      a later call may succeed: loading, failing over, ...
            ├── UnknownLimit    a job or schedule names a limit that the queue does not have
            └── QueueFull       there is no room for another job

Each error takes typed fields and writes its own sentence. `ServerError.verdict` says whether
repeating the call can help.
"""

import re
from enum import Enum, auto
from types import FunctionType, MethodType
from typing import ClassVar, Final

_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+(?=>)")
_UNITS_S: Final = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


class Verdict(Enum):
    """Whether repeating the call after a `ServerError` can help."""

    RETRY = auto()  # nothing was done, and a later call may succeed
    GIVE_UP = auto()  # nothing was done, and repeating will not help
    UNKNOWN = auto()  # it may have been done: repeat only what is safe to repeat

    def __str__(self) -> str:
        return self.name.lower()


class TampuError(Exception):
    """Base of every error that tampu raises; it can be copied and pickled."""

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions are rebuilt from their text by default, but ours take fields and write it.
        return _rebuild, (type(self), self.args, self.__dict__)


class OptionError(TampuError, ValueError):
    """An invalid option: names it, what was given and what was expected."""

    def __init__(self, option: str, given: object, problem: str) -> None:
        self.option, self.given, self.problem = option, given, problem
        super().__init__(f"Invalid {option} {_show(given)}: {problem}.")


class ArgumentError(TampuError, TypeError):
    """An argument that does not fit a task's signature; the value is never quoted."""

    def __init__(self, task: str, argument: str | None, problem: str) -> None:
        self.task, self.argument, self.problem = task, argument, problem
        where = "" if argument is None else f", argument {argument!r}"
        super().__init__(f"Task {task!r}{where}: {problem}.")


class EncodeError(TampuError, ValueError):
    """A value that cannot be written as MessagePack, or that is too large for the wire."""

    def __init__(self, what: str, problem: str) -> None:
        self.what, self.problem = what, problem
        super().__init__(f"Cannot encode the {what}: {problem}.")


class DecodeError(TampuError, ValueError):
    """Bytes that do not hold what they should; the bytes themselves are never quoted."""

    def __init__(self, what: str, problem: str) -> None:
        self.what, self.problem = what, problem
        super().__init__(f"Cannot decode the {what}: {problem}.")


class MissingExtra(TampuError, ImportError):
    """An optional part of tampu that is not installed."""

    def __init__(self, extra: str | None, package: str) -> None:
        self.extra, self.package = extra, package
        wanted = package if extra is None else f"'tampu[{extra}]'"
        super().__init__(f"The package {package!r} is not installed. Run: pip install {wanted}")


class JobFailed(TampuError):
    """A job that was buried. Says what its last attempt raised, as text from where it ran."""

    def __init__(
        self, job_id: str, *, reason: str, error_type: str, message: str, traceback: str = ""
    ) -> None:
        self.job_id, self.reason = job_id, reason
        self.error_type, self.message, self.traceback = error_type, message, traceback
        why = ": ".join(part for part in (error_type, message) if part)
        super().__init__(f"Job {job_id} failed ({reason}){why and f': {why}'}")


class JobCancelled(TampuError):
    """A job that has no result because it was cancelled."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(f"Job {job_id} was cancelled.")


class JobExists(TampuError):
    """A job that was not added, because another job has its unique key."""

    def __init__(self, job_id: str, key: str) -> None:
        self.job_id, self.key = job_id, key
        super().__init__(f"Not added: job {job_id} has the unique key {key!r}.")


class ResultTimeout(TampuError, TimeoutError):
    """No result within the time given; the job may still be waiting or running."""

    def __init__(self, job_id: str, waited_s: float) -> None:
        self.job_id, self.waited_s = job_id, waited_s
        super().__init__(
            f"No result of job {job_id} within {duration_text(waited_s)}. "
            "Is a worker running on its queue, and does it store results?"
        )


class StreamError(TampuError):
    """Base of what goes wrong with the stream of a job."""

    def __init__(self, job_id: str, sentence: str) -> None:
        self.job_id = job_id
        super().__init__(sentence)


class NoStream(StreamError):
    """A job without a stream: nobody will ever write one."""

    def __init__(self, job_id: str, problem: str) -> None:
        self.problem = problem
        super().__init__(job_id, f"Job {job_id} has no stream: {problem}.")


class StreamGap(StreamError):
    """Chunks that a reader has not seen are no longer kept; `next_id` is the next that is there."""

    def __init__(self, job_id: str, next_id: str) -> None:
        self.next_id = next_id
        super().__init__(
            job_id,
            f"Chunks of job {job_id} are gone: only its latest chunks are kept, and the next one "
            f"has the id {next_id}.",
        )


class StreamRestarted(StreamError):
    """Another attempt of the job has begun: what its stream has given so far is void."""

    def __init__(self, job_id: str, attempt: int) -> None:
        self.attempt = attempt
        super().__init__(job_id, f"Job {job_id} started again: this is attempt {attempt}.")


class WrongContext(TampuError, RuntimeError):
    """A call that is not possible here or now, such as a second start."""

    def __init__(self, action: str, reason: str) -> None:
        self.action, self.reason = action, reason
        super().__init__(f"Cannot {action}: {reason}.")


class StoreFailed(TampuError):
    """A local file with task states that cannot be read or written."""

    def __init__(self, store: str, problem: str) -> None:
        self.store, self.problem = store, problem
        super().__init__(f"Cannot use the store {store}: {problem}.")


class OutboxFailed(TampuError):
    """An outbox that cannot be used: no such table, another database, a lost connection."""

    def __init__(self, table: str, problem: str) -> None:
        self.table, self.problem = table, problem
        super().__init__(f"Cannot use the outbox {table}: {problem}.")


class ServerError(TampuError):
    """Base of everything that goes wrong with a server or on the way to it."""

    verdict: ClassVar[Verdict] = Verdict.GIVE_UP

    def __init__(self, server: str, sentence: str) -> None:
        self.server = server
        super().__init__(sentence)


class ServerUnreachable(ServerError):
    """No connection could be made; nothing was sent."""

    verdict = Verdict.RETRY

    def __init__(self, server: str, problem: str) -> None:
        self.problem = problem
        super().__init__(
            server,
            f"Cannot connect to {server} ({problem}). "
            "Start a server there, or correct the URL (TAMPU_URL, url= or --url).",
        )


class ConnectionLost(ServerError):
    """The connection broke with this call in flight: it may or may not have been carried out."""

    verdict = Verdict.UNKNOWN

    def __init__(self, server: str, problem: str) -> None:
        self.problem = problem
        super().__init__(
            server,
            f"Lost the connection to {server} during a call ({problem}); its outcome is unknown.",
        )


class TlsFailed(ServerError):
    """The server was reached, but the TLS handshake failed."""

    def __init__(self, server: str, problem: str) -> None:
        self.problem = problem
        super().__init__(
            server,
            f"Cannot make a secure connection to {server} ({problem}). Check that it speaks TLS "
            "(rediss://) and that its certificate is trusted (ssl_ca_certs=FILE in the URL).",
        )


class AccessDenied(ServerError):
    """Wrong user, wrong password, or a permission that the user does not have."""

    def __init__(self, server: str, problem: str) -> None:
        self.problem = problem
        super().__init__(
            server,
            f"{server} denied access ({problem}). Check the user and password in the URL "
            "and the permissions of that user (ACL).",
        )


class ServerTooOld(ServerError):
    """The server lacks a command that tampu needs."""

    def __init__(self, server: str, version: str, needed: str) -> None:
        self.version, self.needed = version, needed
        super().__init__(
            server,
            f"{server} runs version {version}, but tampu needs {needed}. Upgrade the server.",
        )


class EmbeddedFailed(ServerError):
    """The embedded server did not start, or its directory cannot be used."""

    def __init__(self, server: str, problem: str) -> None:
        self.problem = problem
        super().__init__(server, f"The embedded server in {server} did not start: {problem}.")


class Closed(ServerError):
    """Used after it was closed; nothing was sent."""

    def __init__(self, server: str) -> None:
        super().__init__(server, f"The connection to {server} was already closed by this program.")


class NotDurable(ServerError):
    """The jobs were added, but the requested durability was not confirmed in time."""

    verdict = Verdict.UNKNOWN

    def __init__(self, server: str, durability: str) -> None:
        self.durability = durability
        super().__init__(
            server,
            f"{server} added the jobs but did not confirm durability={durability!r} in time.",
        )


class CommandRefused(ServerError):
    """The server refused the command and did nothing; repeating the call will not help."""

    def __init__(self, server: str, code: str, problem: str) -> None:
        self.code, self.problem = code, problem
        super().__init__(server, f"{server} refused a command: {code} {problem}")


class ServerBusy(CommandRefused):
    """The server is busy: nothing was done, and a later call may succeed."""

    verdict = Verdict.RETRY


class UnknownLimit(CommandRefused):
    """A job or schedule names a limit that its queue does not have; nothing was added."""

    def __init__(self, server: str, code: str, limit: str) -> None:
        self.limit = limit
        problem = (
            f"the queue has no limit {limit!r}. Declare it with app.limit({limit!r}, ...), or "
        )
        super().__init__(server, code, f"{problem}set it with queue.limits.set({limit!r}, ...)")


class QueueFull(CommandRefused):
    """There is no room for another job: the server's memory limit, or the queue's own."""

    verdict = Verdict.RETRY


def _rebuild(
    kind: type[TampuError], args: tuple[object, ...], fields: dict[str, object]
) -> TampuError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


def _show(given: object) -> str:
    """A value for a sentence: a function by its module and name, nothing by its address."""
    if isinstance(given, FunctionType | MethodType):
        return f"{given.__module__}.{given.__qualname__}"
    return _ADDRESS.sub("", repr(given))


def duration_text(seconds: float) -> str:
    """A duration as people write it: "0.05 s", "1h30m", "30d"."""
    if seconds < 60:
        return f"{seconds:g} s"
    left, text = round(seconds), ""
    for unit, size in _UNITS_S:
        count, left = divmod(left, size)
        text += f"{count}{unit}" if count else ""
    return text


def text_of(error: BaseException) -> str:
    """The text of anybody's error; never raises."""
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - a user's __str__ may raise anything
        return "(no text: __str__ raised an error)"
