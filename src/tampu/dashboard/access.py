"""Who may see and do what: access to queues, credentials, and payload keys that stay hidden."""

import hashlib
import hmac
import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self, TypeAlias

from tampu.errors import OptionError
from tampu.util.options import Word

Scope: TypeAlias = Mapping[str, Any]
"""A request, as ASGI describes it."""


class Action(Word):
    """What somebody may be allowed to do to a queue, beside looking at it."""

    PAUSE = "pause"  # pause and resume the queue, a task of it or a key
    CANCEL = "cancel"  # cancel jobs
    RESCHEDULE = "reschedule"  # run delayed jobs now or at another time
    REPLAY = "replay"  # add dead letters again
    DISCARD = "discard"  # remove dead letters
    EDIT = "edit"  # change the payload of a dead letter before it is replayed
    SCHEDULE = "schedule"  # pause, resume and trigger schedules
    DRAIN = "drain"  # let workers finish and stop
    LIMITS = "limits"  # change and open limits, change the weights of keys


_EVERY: Final = frozenset(Action)


@dataclass(frozen=True, slots=True)
class Access:
    """What one visitor may see and do. Made with `nothing`, `read`, `full` or `of`.

    `user` is who it is, for the record of what was done.
    """

    queues: tuple[tuple[str, frozenset[Action]], ...] = ()
    others: frozenset[Action] | None = None  # for queues that are not named; None hides them
    user: str = ""

    @classmethod
    def nothing(cls) -> Self:
        """No access: every page answers 404."""
        return cls()

    @classmethod
    def read(cls, *queues: str, user: str = "") -> Self:
        """Look at these queues, or at all if none is named, and change nothing."""
        return cls._same_for(queues, frozenset(), user)

    @classmethod
    def full(cls, *queues: str, user: str = "") -> Self:
        """Do everything to these queues, or to all if none is named."""
        return cls._same_for(queues, _EVERY, user)

    @classmethod
    def of(
        cls,
        queues: Mapping[str, Iterable[Action | str]],
        *,
        others: Iterable[Action | str] | None = None,
        user: str = "",
    ) -> Self:
        """These actions for each queue; `others` for the rest, which None hides."""
        named = {name: _actions(actions) for name, actions in queues.items()}
        rest = None if others is None else _actions(others)
        return cls(tuple(sorted(named.items(), key=lambda each: each[0])), rest, user)

    @classmethod
    def _same_for(cls, queues: tuple[str, ...], actions: frozenset[Action], user: str) -> Self:
        if not queues:
            return cls((), actions, user)
        return cls(tuple((name, actions) for name in sorted(set(queues))), None, user)

    @property
    def is_nothing(self) -> bool:
        """Whether there is nothing to see."""
        return not self.queues and self.others is None

    @property
    def sees_all(self) -> bool:
        """Whether no queue is hidden, so that facts about the whole server may be shown."""
        return self.others is not None

    def sees(self, queue: str) -> bool:
        """Whether a queue is visible."""
        return self._actions_for(queue) is not None

    def may(self, action: Action, queue: str) -> bool:
        """Whether an action is allowed on a queue."""
        return action in (self._actions_for(queue) or ())

    def only_reading(self) -> Self:
        """The same queues, without any action."""
        named = tuple((name, frozenset[Action]()) for name, _ in self.queues)
        return replace(self, queues=named, others=None if self.others is None else frozenset())

    def _actions_for(self, queue: str) -> frozenset[Action] | None:
        return dict(self.queues).get(queue, self.others)


AccessFunction: TypeAlias = Callable[[Scope], Access | Awaitable[Access]]
"""Gets the ASGI scope of a request, and returns what its sender may see and do."""


def _actions(given: Iterable[Action | str]) -> frozenset[Action]:
    try:
        return frozenset(Action(str(each)) for each in given)
    except ValueError:
        known = ", ".join(map(str, Action))
        raise OptionError("actions", given, f"expected some of {known}") from None


# --- credentials --------------------------------------------------------------------------------


class Credentials:
    """An access function that asks for a token, or for a user and a password.

    The token is sent as a bearer token or as the password of any user, which is how browsers can
    send it. `access` is what those get who know it.
    """

    def __init__(
        self,
        *,
        token: str | None = None,
        user: str | None = None,
        password: str | None = None,
        access: Access | None = None,
    ) -> None:
        if (user is None) != (password is None):
            missing = "password" if password is None else "user"
            raise OptionError(missing, None, "user and password are given together")
        if token is None and user is None:
            raise OptionError("token", None, "expected a token, or a user and a password")
        if "" in {token, user, password}:
            raise OptionError("credentials", "", "must not be empty")
        self._token = None if token is None else _digest(token)
        self._user = None if user is None else _digest(user)
        self._password = None if password is None else _digest(password)
        self._access = Access.full() if access is None else access

    def __repr__(self) -> str:
        return "<Credentials>"

    def __call__(self, scope: Scope) -> Access:
        """Access for whoever sends the right credentials, else nothing."""
        scheme, _, value = _header(scope, b"authorization").partition(" ")
        value = value.strip()
        if scheme.lower() == "bearer" and self._is_token(value):
            return self._access
        if scheme.lower() == "basic":
            user, _, password = _decode_basic(value).partition(":")
            is_user = self._is_user(user, password)
            if self._is_token(password) or is_user:
                return replace(self._access, user=user)
        return Access.nothing()

    def _is_token(self, given: str) -> bool:
        return self._token is not None and hmac.compare_digest(self._token, _digest(given))

    def _is_user(self, user: str, password: str) -> bool:
        if self._user is None or self._password is None:
            return False
        same_user = hmac.compare_digest(self._user, _digest(user))
        # Both are compared always: the time must not tell which one was wrong.
        return hmac.compare_digest(self._password, _digest(password)) and same_user


def _digest(text: str) -> bytes:
    """Of one length, so that comparing does not tell the length of a secret."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _header(scope: Scope, name: bytes) -> str:
    found = [value for key, value in scope["headers"] if key == name]
    return bytes(found[0]).decode("latin-1") if len(found) == 1 else ""


def _decode_basic(value: str) -> str:
    try:
        return b64decode(value, validate=True).decode()
    except (Base64Error, ValueError):
        return ""


# --- payload keys -------------------------------------------------------------------------------

Show: TypeAlias = Callable[[str], bool] | Collection[str] | None
HIDDEN: Final = "•••"
_SECRET: Final = re.compile(
    r"passw|passphrase|secret|token|api[_-]?key|private[_-]?key|authoriz|cookie|credential|session",
    re.IGNORECASE,
)


class Redaction:
    """Replaces values of payloads that must not be shown.

    `show` decides. None hides keys that sound like secrets; names show these keys and what is below
    them, and hide the rest; a function is asked for each key.
    """

    def __init__(self, show: Show = None) -> None:
        self._names = None if show is None or callable(show) else frozenset(show)
        self._is_shown = show if callable(show) else _sounds_harmless

    def apply(self, value: object) -> object:
        """The value with what is hidden replaced by `HIDDEN`."""
        if self._names is not None:
            return self._only_named(value)
        return self._without_hidden(value)

    def _without_hidden(self, value: object) -> object:
        if isinstance(value, dict):
            return {
                key: self._without_hidden(item) if self._is_shown(str(key)) else HIDDEN
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._without_hidden(item) for item in value]
        return value

    def _only_named(self, value: object) -> object:
        if isinstance(value, dict):
            names = self._names or frozenset()
            return {
                key: item if str(key) in names else self._only_named(item)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._only_named(item) for item in value]
        return HIDDEN


def _sounds_harmless(key: str) -> bool:
    return _SECRET.search(key) is None
