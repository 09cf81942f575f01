"""`tampu dashboard` before it serves anything: addresses, credentials, targets."""

import subprocess
import sys

import pytest

from tampu.cli.dashboard import (
    PASSWORD_VARIABLE,
    TOKEN_VARIABLE,
    USER_VARIABLE,
    check_address,
    find_target,
    is_loopback,
    open_socket,
    read_credentials,
)
from tampu.cli.options import SharedOptions
from tampu.cli.output import CommandFailed, ExitCode
from tampu.errors import OptionError


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),  # noqa: S104 - refused
        ("::", False),
        ("10.0.0.5", False),
        ("localhost.example", False),
        ("", False),
    ],
)
def test_only_this_machine_needs_no_credentials(host: str, *, is_local: bool) -> None:
    assert is_loopback(host) is is_local
    check_address(host, has_credentials=True)
    if is_local:
        check_address(host, has_credentials=False)
        return
    with pytest.raises(CommandFailed, match="needs --user and --password, or --token") as failed:
        check_address(host, has_credentials=False)
    assert failed.value.code is ExitCode.USAGE


def test_credentials_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (USER_VARIABLE, PASSWORD_VARIABLE, TOKEN_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    assert read_credentials(None, None, token=None) is None
    monkeypatch.setenv(TOKEN_VARIABLE, "s3cret")
    credentials = read_credentials(None, None, token=None)
    assert credentials is not None
    header = (b"authorization", b"Bearer s3cret")
    assert not credentials({"headers": [header]}).is_nothing
    monkeypatch.setenv(USER_VARIABLE, "ada")
    with pytest.raises(OptionError, match="password"):
        read_credentials(None, None, token=None)
    monkeypatch.setenv(PASSWORD_VARIABLE, "x")
    assert read_credentials(None, None, token=None) is not None


def test_the_target_is_a_url_or_an_app() -> None:
    shared = SharedOptions(url="redis://localhost:1")
    assert find_target(None, shared) == "redis://localhost:1"
    assert find_target("redis://localhost:2", SharedOptions()) == "redis://localhost:2"
    assert find_target("embedded:.x", SharedOptions()) == "embedded:.x"
    assert find_target("tampu.demo.shop:app", SharedOptions()).__class__.__name__ == "App"
    with pytest.raises(CommandFailed, match="Give the URL once"):
        find_target("redis://localhost:2", shared)


def test_a_taken_port_is_a_sentence() -> None:
    with open_socket("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CommandFailed, match=f"Cannot listen on 127.0.0.1 port {port}"):
            open_socket("127.0.0.1", port)


def test_without_the_extra_it_says_what_to_install() -> None:
    hide = "import sys; sys.modules['starlette'] = None; sys.argv[1:] = ['dashboard']; "
    run = "from tampu.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", hide + run], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "pip install 'tampu[dashboard]'" in done.stderr
    assert "Traceback" not in done.stderr
