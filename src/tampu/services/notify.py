"""Notifiers: where it is told that an alert has fired or resolved."""

from __future__ import annotations

import asyncio
import http.client
import os
import signal
import socket
import ssl
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import urlsplit

from tampu._version import __version__
from tampu.errors import OptionError, TampuError, duration_text
from tampu.job import NewJob
from tampu.producer.options import QueueSettings
from tampu.producer.request import request_for
from tampu.server.scripts.adding import AddKeys, AddRequest, FullJobs, add
from tampu.util.clock import Duration, now_ms, to_positive_ms, to_s
from tampu.util.ids import new_id
from tampu.util.options import check_type
from tampu.wire.alerts import notice_arguments, notice_json
from tampu.wire.names import check_job_name, check_queue_name

if TYPE_CHECKING:
    from tampu.server.lane import Lane
    from tampu.wire.alerts import AlertNotice
    from tampu.wire.keys import QueueKeys

Send: TypeAlias = "Callable[[AlertNotice], Awaitable[str | None]]"
"""Delivers a notice; what went wrong, or None."""
_IDS_KEPT: Final = "2d"  # of the jobs; longer than a notice waits to be delivered
_MOST_OUTPUT_BYTES: Final = 200
_MOST_ANSWER_BYTES: Final = 4096
_MOST_SECONDS: Final = 60
_THIS_MACHINE: Final = ("localhost", "127.0.0.1", "::1")
_HIDDEN: Final = "..."
_WEBHOOK: Final = "https://HOST/PATH; http only to this machine, and no user or password"
_NOTIFY: Final = (
    "the name of a task or job, NotifyJob(...), NotifyCommand([...]), NotifyWebhook(...), "
    "or a list of these"
)


# --- what users declare -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NotifyJob:
    """Adds a job with this name and the data `{"alert": {...}}`, once for each notice.

    `queue` is the queue to add it to; None means the queue of the worker, or of the app's task.
    """

    name: str
    queue: str | None = None

    def __post_init__(self) -> None:
        check_job_name(self.name)
        if self.queue is not None:
            check_queue_name(self.queue)

    @property
    def label(self) -> str:
        """How the log names it."""
        return f"job {self.name!r}"


@dataclass(frozen=True, slots=True)
class NotifyCommand:
    """Runs a program for each notice, without a shell. It gets the notice as JSON on its input.

    A notice is delivered when the program ends with exit code 0 within `timeout`.
    """

    command: list[str] | tuple[str, ...]
    timeout: Duration = field(default=10, kw_only=True)

    def __post_init__(self) -> None:
        given: object = self.command
        parts = given if isinstance(given, list | tuple) else ()
        valid = all(isinstance(each, str) and "\0" not in each for each in parts)
        if not parts or not valid or not parts[0]:
            # Only its type is shown: an argument may be a secret.
            problem = 'expected a list of texts, such as ["/usr/bin/notify", "--urgent"]'
            raise OptionError("command", type(given), problem)
        _check_timeout(self.timeout)

    def __repr__(self) -> str:
        return f"NotifyCommand([{self.command[0]!r}, {_HIDDEN}])"

    @property
    def label(self) -> str:
        """How the log names it."""
        return f"command {self.command[0]}"


@dataclass(frozen=True, slots=True)
class NotifyWebhook:
    """Posts each notice as JSON to a URL whose host is in `allowed_hosts`.

    A notice is delivered when the answer is 200 to 299 within `timeout`. Redirects are not
    followed. The path of the URL may be a secret: it is never shown.
    """

    url: str
    allowed_hosts: list[str] | tuple[str, ...] = field(kw_only=True)
    timeout: Duration = field(default=10, kw_only=True)

    def __post_init__(self) -> None:
        hosts: object = self.allowed_hosts
        if not isinstance(hosts, list | tuple) or not all(isinstance(each, str) for each in hosts):
            expected = 'expected a list of hosts, such as ["hooks.example.com"]'
            raise OptionError("allowed_hosts", hosts, expected)
        host = _check_url(self.url)
        if host not in {each.lower() for each in self.allowed_hosts}:
            raise OptionError(
                "url", f"https://{host}/{_HIDDEN}", "its host is not in allowed_hosts"
            )
        _check_timeout(self.timeout)

    def __repr__(self) -> str:
        return f"NotifyWebhook('{self.label.removeprefix('webhook ')}/{_HIDDEN}')"

    @property
    def label(self) -> str:
        """How the log names it."""
        parts = urlsplit(self.url)
        return f"webhook {parts.scheme}://{parts.hostname}"


Notifier: TypeAlias = NotifyJob | NotifyCommand | NotifyWebhook
Notify: TypeAlias = str | Notifier | Sequence[str | Notifier]
"""What `notify=` takes. Text is the name of a job; for an app, the name of one of its tasks."""


def check_notify(given: object) -> tuple[Notifier, ...]:
    """The notifiers that were given; `OptionError` if one is none."""
    parts = given if isinstance(given, list | tuple) else (given,)
    return tuple(_check_notifier(each) for each in parts)


def _check_notifier(given: object) -> Notifier:
    if isinstance(given, str):
        return NotifyJob(given)
    if not isinstance(given, NotifyJob | NotifyCommand | NotifyWebhook):
        raise OptionError("notify", type(given), f"expected {_NOTIFY}")
    return given


def _check_timeout(given: Duration) -> None:
    if to_positive_ms("timeout", given) > _MOST_SECONDS * 1000:
        raise OptionError("timeout", given, f"must be at most {duration_text(_MOST_SECONDS)}")


def _check_url(url: str) -> str:
    """The host of a URL that can be posted to. An error never quotes the URL."""
    check_type("url", url, str, accepted="text")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # a port that is no number raises
    except ValueError:
        raise OptionError("url", _HIDDEN, f"expected {_WEBHOOK}") from None
    is_plain = url.isascii() and url.isprintable() and " " not in url
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and host in _THIS_MACHINE)
    if not host or not is_plain or not is_safe or "@" in parts.netloc:
        raise OptionError("url", _HIDDEN, f"expected {_WEBHOOK}")
    return host.lower()


# --- delivering ---------------------------------------------------------------------------------


class JobSender:
    """Adds a job for each notice; the same notice adds no second job."""

    def __init__(self, lane: Lane, keys: QueueKeys, name: str) -> None:
        self._lane, self._keys, self._name = lane, keys, name
        self._add_keys = AddKeys(
            stream=keys.stream,
            delayed=keys.delayed,
            memory=keys.producer(new_id(now_ms())),
            wakeup=keys.wakeup,
            gate=keys.gate,
            control=keys.control,
            notices=keys.notices,
        )
        self._calls = 0

    async def __call__(self, notice: AlertNotice) -> str | None:
        """Add the job."""
        job = NewJob(self._name, notice_arguments(notice), job_id=notice.id, unique_for=_IDS_KEPT)
        added_ms = now_ms()
        request = request_for(job, QueueSettings().job_rules, added_ms)
        self._calls += 1
        jobs = FullJobs(request.encode(notice.id, added_ms), request.keys(self._keys, notice.id))
        call = AddRequest(keys=self._add_keys, jobs=jobs, number=self._calls)
        try:
            await add(self._lane, call)
        except TampuError as error:
            return str(error)
        return None


class BlockingCall(ABC):
    """One delivery that blocks, so it runs in a thread of its own."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s

    @abstractmethod
    def run(self) -> str | None:
        """Deliver; what went wrong, or None."""

    @abstractmethod
    def abort(self) -> None:
        """Make `run` return soon; called when its time is up, and after its end."""

    async def finish(self) -> str | None:
        """Deliver within the time limit."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str | None] = loop.create_future()

        def set_answer(problem: str | None) -> None:
            if not answer.done():
                answer.set_result(problem)

        def run() -> None:
            problem = self.run()
            with suppress(RuntimeError):  # the loop has ended before
                loop.call_soon_threadsafe(set_answer, problem)

        # A daemon, because a name server that does not answer must not hold up the program's end.
        threading.Thread(target=run, name="tampu-notify", daemon=True).start()
        try:
            async with asyncio.timeout(self.limit_s):
                return await answer
        except TimeoutError:
            return self._describe_timeout()
        finally:
            self.abort()

    def _describe_timeout(self) -> str:
        return f"did not end within {duration_text(self.limit_s)}"


class CommandCall(BlockingCall):
    """A command that runs for one notice."""

    def __init__(self, notifier: NotifyCommand, notice: AlertNotice) -> None:
        super().__init__(to_s("timeout", notifier.timeout))
        self._command, self._input = notifier.command, notice_json(notice)
        self._process: subprocess.Popen[bytes] | None = None
        self._is_aborted = False

    def run(self) -> str | None:
        """Run the command to its end."""
        # A file, not a pipe: something that it has started may keep its output open.
        with TemporaryFile() as output:
            try:
                process = self._process = subprocess.Popen(  # noqa: S603 - as the user declared it
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # so that what it has started ends with it
                )
            except OSError as error:
                return f"cannot be started: {error.strerror}"
            if self._is_aborted:
                self.abort()
            process.communicate(self._input)
            if not process.returncode:
                return None
            output.seek(0)
            text = output.read(_MOST_OUTPUT_BYTES).decode("utf-8", "replace")
        shown = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return f"ended with exit code {process.returncode}{shown and f': {shown}'}"

    def abort(self) -> None:
        """Kill the command if it still runs."""
        self._is_aborted, process = True, self._process
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)


class WebhookCall(BlockingCall):
    """A request for one notice."""

    def __init__(self, notifier: NotifyWebhook, notice: AlertNotice) -> None:
        super().__init__(to_s("timeout", notifier.timeout))
        self._url = urlsplit(notifier.url)
        self._body, self._id = notice_json(notice), notice.id
        self._connection: http.client.HTTPConnection | None = None

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=self.limit_s)
        context = ssl.create_default_context()  # verifies the certificate and the host
        return http.client.HTTPSConnection(host, port, timeout=self.limit_s, context=context)

    def run(self) -> str | None:
        """Post the notice. The client follows no redirects and uses no proxies."""
        connection = self._connection = self._connect()
        path = (self._url.path or "/") + (f"?{self._url.query}" if self._url.query else "")
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"tampu/{__version__}",
            "Idempotency-Key": self._id.encode("ascii", "backslashreplace").decode(),
        }
        try:
            connection.request("POST", path, self._body, headers)
            answer = connection.getresponse()
            answer.read(_MOST_ANSWER_BYTES)
        except TimeoutError:  # of one step, which may notice before the limit of the whole does
            return self._describe_timeout()
        except (OSError, http.client.HTTPException, ValueError) as error:
            return f"cannot be reached: {type(error).__name__}"  # its text may have the URL
        finally:
            connection.close()
        if 300 <= answer.status < 400:
            return f"answered {answer.status}; redirects are not followed"
        return None if 200 <= answer.status < 300 else f"answered {answer.status}"

    def abort(self) -> None:
        """End a read or write that is in progress."""
        connected = None if self._connection is None else self._connection.sock
        if connected is not None:
            with suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)


def sender_for(
    notifier: NotifyCommand | NotifyWebhook,
) -> Callable[[AlertNotice], Awaitable[str | None]]:
    """What delivers notices as the notifier says."""
    if isinstance(notifier, NotifyCommand):
        return lambda notice: CommandCall(notifier, notice).finish()
    return lambda notice: WebhookCall(notifier, notice).finish()
