"""Who may see and do what."""

from base64 import b64encode

import pytest

from tampu.dashboard.access import HIDDEN, Access, Action, Credentials, Redaction
from tampu.errors import OptionError


def test_nothing_hides_every_queue() -> None:
    access = Access.nothing()
    assert access.is_nothing
    assert not access.sees("emails")
    assert not access.may(Action.PAUSE, "emails")


def test_reading_shows_all_queues_and_allows_no_action() -> None:
    access = Access.read()
    assert access.sees("emails")
    assert access.sees_all
    assert not any(access.may(action, "emails") for action in Action)


def test_named_queues_hide_the_others() -> None:
    access = Access.full("emails", user="ada")
    assert access.may(Action.PAUSE, "emails")
    assert not access.sees("billing")
    assert not access.sees_all
    assert access.user == "ada"


def test_actions_are_given_for_each_queue() -> None:
    access = Access.of({"emails": ["pause"], "billing": []}, others=None)
    assert access.may(Action.PAUSE, "emails")
    assert not access.may(Action.REPLAY, "emails")
    assert access.sees("billing")
    assert not access.may(Action.PAUSE, "billing")
    assert not access.sees("images")


def test_an_unknown_action_is_refused() -> None:
    with pytest.raises(OptionError, match="pause, cancel"):
        Access.of({"emails": ["destroy"]})


def test_only_reading_keeps_what_is_visible() -> None:
    access = Access.of({"emails": ["pause"]}, others=["replay"]).only_reading()
    assert access.sees("emails")
    assert access.sees("images")
    assert not access.may(Action.PAUSE, "emails")
    assert not access.may(Action.REPLAY, "images")
    assert Access.full("emails").only_reading().sees("billing") is False


# --- credentials --------------------------------------------------------------------------------


def basic(user: str, password: str) -> str:
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


def ask(credentials: Credentials, *headers: str) -> Access:
    raw = [(b"authorization", each.encode()) for each in headers]
    return credentials({"type": "http", "headers": raw})


@pytest.mark.parametrize(
    ("header", "right"),
    [
        (basic("ada", "pass:word"), True),
        (basic("Ada", "pass:word"), False),
        (basic("ada", "pass"), False),
        (basic("ada", ""), False),
        (basic("", "pass:word"), False),
        ("Bearer pass:word", False),
        ("Basic !!!", False),
        ("Basic " + b64encode(b"\xff\xfe:x").decode(), False),
        ("", False),
    ],
)
def test_a_user_and_a_password(header: str, *, right: bool) -> None:
    credentials = Credentials(user="ada", password="pass:word")  # noqa: S106
    assert ask(credentials, header).is_nothing is not right


@pytest.mark.parametrize(
    ("header", "right"),
    [
        ("Bearer s3cret", True),
        ("bearer s3cret", True),
        (basic("anybody", "s3cret"), True),  # what a browser can send
        ("Bearer S3cret", False),
        ("Bearer s3cret2", False),
        ("Bearer", False),
        (basic("s3cret", ""), False),
        ("s3cret", False),
    ],
)
def test_a_token(header: str, *, right: bool) -> None:
    assert ask(Credentials(token="s3cret"), header).is_nothing is not right  # noqa: S106


def test_no_header_and_two_headers_are_wrong() -> None:
    credentials = Credentials(token="s3cret")  # noqa: S106
    assert ask(credentials).is_nothing
    assert ask(credentials, "Bearer s3cret", "Bearer s3cret").is_nothing


def test_access_carries_the_user_who_came_in() -> None:
    credentials = Credentials(user="ada", password="x", access=Access.read())  # noqa: S106
    assert ask(credentials, basic("ada", "x")).user == "ada"
    assert not ask(credentials, basic("ada", "x")).may(Action.PAUSE, "emails")


@pytest.mark.parametrize(
    "given",
    [{}, {"user": "ada"}, {"password": "x"}, {"token": ""}, {"user": "", "password": "x"}],
)
def test_incomplete_credentials_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(OptionError):
        Credentials(**given)  # type: ignore[arg-type]


def test_a_secret_is_in_no_text() -> None:
    assert "s3cret" not in repr(Credentials(token="s3cret"))  # noqa: S106


# --- payloads -----------------------------------------------------------------------------------

PAYLOAD = {"to": "ada", "password": "p", "order": {"id": 1, "api_key": "k"}, "tags": ["a", "b"]}


def test_keys_that_sound_like_secrets_are_hidden() -> None:
    shown = Redaction().apply(PAYLOAD)
    assert shown == {
        "to": "ada",
        "password": HIDDEN,
        "order": {"id": 1, "api_key": HIDDEN},
        "tags": ["a", "b"],
    }


def test_named_keys_and_what_is_below_them_are_shown() -> None:
    shown = Redaction({"order"}).apply(PAYLOAD)
    assert shown == {
        "to": HIDDEN,
        "password": HIDDEN,
        "order": {"id": 1, "api_key": "k"},
        "tags": [HIDDEN, HIDDEN],
    }
    assert Redaction(()).apply("text") == HIDDEN


def test_a_function_decides_key_by_key() -> None:
    shown = Redaction(lambda key: key != "order").apply([PAYLOAD])
    assert shown == [{"to": "ada", "password": "p", "order": HIDDEN, "tags": ["a", "b"]}]
