"""Notifiers: what is refused, and how commands and webhooks are called."""

import json
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tampu.errors import OptionError
from tampu.services.notify import (
    CommandCall,
    NotifyCommand,
    NotifyJob,
    NotifyWebhook,
    WebhookCall,
    check_notify,
)
from tampu.wire.alerts import SAMPLE_NOTICE

HIDDEN = "s3cret"
HOST = "hooks.example.com"


def command(source: str, *args: str, **options: Any) -> CommandCall:  # noqa: ANN401
    notifier = NotifyCommand([sys.executable, "-c", source, *args], **options)
    return CommandCall(notifier, SAMPLE_NOTICE)


class TestDeclaring:
    @pytest.mark.parametrize(
        "url",
        [
            f"http://{HOST}/{HIDDEN}",
            f"ftp://{HOST}/{HIDDEN}",
            f"https://user:{HIDDEN}@{HOST}/",
            f"https://{HOST}:{HIDDEN}/",
            f"https://{HOST}/{HIDDEN}\r\nX: 1",
            f"https:///{HIDDEN}",
            f"https://[{HIDDEN}/",
            f"https://{HOST}/{HIDDEN} x",
        ],
    )
    def test_a_url_that_cannot_be_posted_to_safely_is_refused_and_never_quoted(
        self, url: str
    ) -> None:
        with pytest.raises(OptionError) as refusal:
            NotifyWebhook(url, allowed_hosts=[HOST])
        assert refusal.value.option == "url"
        assert HIDDEN not in str(refusal.value)

    @pytest.mark.parametrize(
        "host", ["evil.example", f"{HOST}.evil.example", "hooks.example.co", "HOOKS.example"]
    )
    def test_a_host_that_is_not_in_the_list_is_refused(self, host: str) -> None:
        with pytest.raises(OptionError, match="not in allowed_hosts") as refusal:
            NotifyWebhook(f"https://{host}/{HIDDEN}", allowed_hosts=[HOST])
        assert HIDDEN not in str(refusal.value)

    def test_hosts_are_compared_without_case_and_the_url_is_not_shown(self) -> None:
        hook = NotifyWebhook(f"https://Hooks.Example.com/{HIDDEN}", allowed_hosts=[HOST])
        assert HIDDEN not in repr(hook) + hook.label
        assert hook.label == f"webhook https://{HOST}"

    def test_the_list_of_hosts_must_be_a_list(self) -> None:
        with pytest.raises(OptionError, match="allowed_hosts"):
            NotifyWebhook(f"https://{HOST}/", allowed_hosts=HOST)  # type: ignore[arg-type]

    @pytest.mark.parametrize("given", [f"notify --key {HIDDEN}", [], [""], [HIDDEN, 1], ["a\0"]])
    def test_a_command_is_a_list_of_texts_and_never_quoted(self, given: Any) -> None:  # noqa: ANN401
        with pytest.raises(OptionError, match="command") as refusal:
            NotifyCommand(given)
        assert HIDDEN not in str(refusal.value)

    def test_the_arguments_of_a_command_are_not_shown(self) -> None:
        assert repr(NotifyCommand(["notify", HIDDEN])) == "NotifyCommand(['notify', ...])"

    @pytest.mark.parametrize("limit", [0, "2m", "x"])
    def test_the_time_limit_is_at_most_a_minute(self, limit: Any) -> None:  # noqa: ANN401
        with pytest.raises(OptionError, match="timeout"):
            NotifyCommand(["notify"], timeout=limit)

    def test_text_is_the_name_of_a_job_and_anything_else_is_refused(self) -> None:
        assert check_notify("on_alert") == (NotifyJob("on_alert"),)
        assert check_notify([NotifyJob("a", queue="q"), "b"]) == (
            NotifyJob("a", queue="q"),
            NotifyJob("b"),
        )
        with pytest.raises(OptionError, match="NotifyWebhook"):
            check_notify([print])
        with pytest.raises(OptionError, match="queue"):
            NotifyJob("a", queue="a b")


class TestCommands:
    async def test_a_command_gets_the_notice_as_json_without_a_shell(self, tmp_path: Path) -> None:
        path = tmp_path / "$(told)"
        source = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())"
        assert await command(source, str(path)).finish() is None
        told = json.loads(path.read_text())
        assert told == {
            "id": SAMPLE_NOTICE.id,
            "key": "oldest",
            "kind": "oldest",
            "queue": "emails",
            "state": "fired",
            "sentence": "",
            "value": 0.0,
            "limit": 0.0,
            "since": "1970-01-01T00:00:00Z",
            "at": "1970-01-01T00:00:00Z",
        }

    async def test_a_command_that_fails_is_told_of_with_a_cut_of_its_output(self) -> None:
        problem = await command("print('x' * 10_000); raise SystemExit(3)").finish()
        assert problem == f"ended with exit code 3: {'x' * 200}"

    async def test_a_command_that_does_not_exist_is_a_problem(self) -> None:
        problem = await CommandCall(NotifyCommand(["/no/such"]), SAMPLE_NOTICE).finish()
        assert problem == "cannot be started: No such file or directory"

    async def test_a_command_that_takes_too_long_is_ended_with_what_it_has_started(self) -> None:
        child = (
            "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1]))).recv(1)"
        )
        source = (
            "import subprocess, sys\n"
            f"subprocess.run([sys.executable, '-c', {child!r}, sys.argv[1]])"
        )
        with socket.create_server(("127.0.0.1", 0)) as listener:
            call = command(source, str(listener.getsockname()[1]), timeout=2)
            assert await call.finish() == "did not end within 2 s"
            listener.settimeout(10)
            taken, _ = listener.accept()
            with taken:
                taken.settimeout(10)
                assert taken.recv(1) == b""  # the child of the command has ended

    async def test_a_command_that_leaves_something_running_is_done_when_it_ends(self) -> None:
        source = "import subprocess; subprocess.Popen(['sleep', '5'])"
        assert await command(source, timeout=4).finish() is None


@contextmanager
def talking(answer: bytes) -> Iterator[str]:
    """A server that writes this answer to one request, and then says no more."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            taken, _ = listener.accept()
            with taken, suppress(ConnectionResetError):
                taken.recv(65536)
                taken.sendall(answer)
                while taken.recv(65536):
                    pass

        thread = Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/{HIDDEN}"
        thread.join()


class TestWebhooks:
    @pytest.mark.parametrize(
        ("answer", "problem"),
        [
            (b"HTTP/1.1 200 OK\r\n\r\nok", None),
            (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", "answered 503"),
            (
                b"HTTP/1.1 307 Go\r\nLocation: http://evil/\r\nContent-Length: 0\r\n\r\n",
                "answered 307; redirects are not followed",
            ),
            (b"nonsense\r\n\r\n", "cannot be reached: BadStatusLine"),
            (b"HTTP/1.1 200", "did not end within 0.3 s"),
        ],
        ids=["ok", "busy", "redirect", "nonsense", "silent"],
    )
    async def test_what_an_answer_means(self, answer: bytes, problem: str | None) -> None:
        limit = 0.3 if problem and "did not" in problem else 10
        if answer.endswith(b"ok"):
            answer = answer.replace(b"\r\n\r\n", b"\r\nContent-Length: 2\r\n\r\n")
        with talking(answer) as url:
            hook = NotifyWebhook(url, allowed_hosts=["127.0.0.1"], timeout=limit)
            assert await WebhookCall(hook, SAMPLE_NOTICE).finish() == problem

    async def test_a_host_that_speaks_no_tls_is_never_told_anything(self) -> None:
        with talking(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") as url:
            hook = NotifyWebhook(url.replace("http:", "https:"), allowed_hosts=["127.0.0.1"])
            problem = await WebhookCall(hook, SAMPLE_NOTICE).finish()
        assert problem == "cannot be reached: SSLError"
