"""The one error tree.

    TampuError
    ├── OptionError             an option, name or URL that cannot be, named at the call
    ├── ArgumentError           an argument of a task that is missing, unknown or of a wrong type
    ├── EncodeError             a payload that MessagePack cannot carry, or that is too large
    ├── DecodeError             bytes that are not what they should be
    ├── MissingExtra            an optional part that is not installed
    ├── JobFailed               a job was buried; what its last attempt raised, in words
    ├── ResultTimeout           no result came within the time given
    ├── OutOfPlace              something that belongs to the other side of a queue
    ├── StoreFailed             a file of states that cannot be used
    └── ServerError             everything a server or the way to it can do to us
        ├── ServerUnreachable   no connection was made; nothing was sent
        ├── ConnectionLost      the connection broke with a call in flight; its outcome is unknown
        ├── TlsFailed           the server was reached, the secure connection was not made
        ├── AccessDenied        wrong user, wrong password or a right that is missing
        ├── ServerTooOld        the server lacks what tampu cannot do without
        ├── EmbeddedFailed      the embedded server did not start
        ├── Closed              used after it was closed; nothing was sent
        ├── NotDurable          added, but not confirmed as safely as was asked for
        └── CommandRefused      the server said no; nothing was done
            ├── ServerBusy      it may say yes later: loading, failing over, out of replicas ...
            └── QueueFull       it has no memory left for another job

Each error takes typed fields and writes its own sentence. A `ServerError` says through
`verdict` whether repeating the call can help.
"""

from enum import Enum, auto
from typing import ClassVar


class Verdict(Enum):
    """What a caller may conclude from a `ServerError`."""

    RETRY = auto()  # nothing was done, and it may work later
    GIVE_UP = auto()  # nothing was done, and repeating will not help
    UNKNOWN = auto()  # it may have been done: repeat only what is safe to repeat


class TampuError(Exception):
    """Base of every error that tampu raises; it can be copied and pickled."""

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions are made again from their text, but ours take fields and write it themselves.
        return _made_again, (type(self), self.args, self.__dict__)


class OptionError(TampuError, ValueError):
    """An option that cannot be: names it, what was given and what is accepted."""

    def __init__(self, option: str, given: object, accepted: str) -> None:
        self.option, self.given, self.accepted = option, given, accepted
        super().__init__(f"{option}={given!r} cannot be: it {accepted}.")


class ArgumentError(TampuError, TypeError):
    """An argument that does not fit a task's signature; the value is never quoted."""

    def __init__(self, task: str, argument: str | None, problem: str) -> None:
        self.task, self.argument, self.problem = task, argument, problem
        where = "" if argument is None else f"argument {argument} "
        super().__init__(f"task {task}: {where}{problem}.")


class EncodeError(TampuError, ValueError):
    """A value that cannot be written as MessagePack, or that is too large for the wire."""

    def __init__(self, what: str, problem: str) -> None:
        self.what, self.problem = what, problem
        super().__init__(f"{what} cannot be encoded: {problem}.")


class DecodeError(TampuError, ValueError):
    """Bytes that do not hold what they should; the bytes themselves are never quoted."""

    def __init__(self, what: str, problem: str) -> None:
        self.what, self.problem = what, problem
        super().__init__(f"{what} cannot be decoded: {problem}.")


class MissingExtra(TampuError, ImportError):
    """An optional part of tampu that is not installed."""

    def __init__(self, extra: str, package: str) -> None:
        self.extra, self.package = extra, package
        super().__init__(
            f"the package {package} is missing; install it with: pip install 'tampu[{extra}]'"
        )


class JobFailed(TampuError):
    """A job that was buried. Says what its last attempt raised, as text from where it ran."""

    def __init__(
        self, job_id: str, *, reason: str, error_type: str, message: str, traceback: str = ""
    ) -> None:
        self.job_id, self.reason = job_id, reason
        self.error_type, self.message, self.traceback = error_type, message, traceback
        why = ": ".join(part for part in (error_type, message) if part)
        super().__init__(f"job {job_id} failed for good ({reason}){why and f': {why}'}")


class ResultTimeout(TampuError, TimeoutError):
    """No result within the time given; the job may still be waiting or running."""

    def __init__(self, job_id: str, waited_s: float) -> None:
        self.job_id, self.waited_s = job_id, waited_s
        super().__init__(
            f"no result of job {job_id} within {waited_s:g} s; "
            "is a worker with store_results=True running on its queue?"
        )


class OutOfPlace(TampuError, RuntimeError):
    """Something that belongs to the other side of a queue, or to a job that is running."""

    def __init__(self, what: str, belongs: str) -> None:
        self.what, self.belongs = what, belongs
        super().__init__(f"{what} belongs {belongs}.")


class StoreFailed(TampuError):
    """A store of states that is no server's, and that cannot be read or written."""

    def __init__(self, store: str, problem: str) -> None:
        self.store, self.problem = store, problem
        super().__init__(f"the store {store} cannot be used: {problem}.")


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
            f"no server answers at {server} ({problem}); "
            "start one there, or correct the URL (TAMPU_URL, url= or --url).",
        )


class ConnectionLost(ServerError):
    """The connection broke with this call in flight: it may or may not have been carried out."""

    verdict = Verdict.UNKNOWN

    def __init__(self, server: str, problem: str) -> None:
        self.problem = problem
        super().__init__(
            server, f"the connection to {server} broke ({problem}); the call's outcome is unknown."
        )


class TlsFailed(ServerError):
    """The server was reached, but no secure connection could be agreed."""

    def __init__(self, server: str, problem: str) -> None:
        self.problem = problem
        super().__init__(
            server,
            f"no secure connection to {server} ({problem}); check that it speaks TLS there "
            "(rediss://) and that its certificate is trusted (ssl_ca_certs=FILE in the URL).",
        )


class AccessDenied(ServerError):
    """Wrong user, wrong password, or a right that the user does not have."""

    def __init__(self, server: str, problem: str) -> None:
        self.problem = problem
        super().__init__(
            server,
            f"{server} denies access ({problem}); check user and password in the URL "
            "and the rights of that user (ACL).",
        )


class ServerTooOld(ServerError):
    """The server lacks a command that tampu cannot do without."""

    def __init__(self, server: str, version: str, needed: str) -> None:
        self.version, self.needed = version, needed
        super().__init__(
            server, f"{server} runs version {version}; tampu needs {needed}: upgrade the server."
        )


class EmbeddedFailed(ServerError):
    """The embedded server did not start, or its directory cannot be used."""

    def __init__(self, server: str, problem: str) -> None:
        self.problem = problem
        super().__init__(server, f"the embedded server in {server} did not start: {problem}.")


class Closed(ServerError):
    """Used after it was closed; nothing was sent."""

    def __init__(self, server: str) -> None:
        super().__init__(server, f"the connection to {server} was closed by this program.")


class NotDurable(ServerError):
    """The jobs were added, but the copies that were asked for were not confirmed in time."""

    verdict = Verdict.UNKNOWN

    def __init__(self, server: str, durability: str) -> None:
        self.durability = durability
        super().__init__(
            server,
            f"{server} added the jobs but did not confirm durability={durability!r} in time.",
        )


class CommandRefused(ServerError):
    """The server said no, and nothing was done; repeating the call will not help."""

    def __init__(self, server: str, code: str, problem: str) -> None:
        self.code, self.problem = code, problem
        super().__init__(server, f"{server} refused a command: {code} {problem}")


class ServerBusy(CommandRefused):
    """The server said "not now": nothing was done, and a later call may succeed."""

    verdict = Verdict.RETRY


class QueueFull(CommandRefused):
    """There is no room for another job: the server's memory limit, or the queue's own."""

    verdict = Verdict.RETRY


def _made_again(
    kind: type[TampuError], args: tuple[object, ...], fields: dict[str, object]
) -> TampuError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


def text_of(error: BaseException) -> str:
    """The text of anybody's error; never raises."""
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - a user's __str__ may raise anything
        return "(its text cannot be made)"
