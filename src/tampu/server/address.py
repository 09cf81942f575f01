"""The address of a server: every URL that tampu accepts, parsed and checked."""

import re
from dataclasses import dataclass, field
from enum import Enum, auto
from urllib.parse import parse_qsl, unquote, urlsplit

from tampu.errors import OptionError

DEFAULT_PORT = 6379
DEFAULT_SENTINEL_PORT = 26379

FORMS = (
    "expected redis://HOST:PORT/DB, rediss://, valkey://, valkeys://, unix:///PATH, embedded:PATH, "
    "redis+sentinel://HOST,HOST/SERVICE or redis+cluster://HOST,HOST"
)

_SECURE = {"redis": False, "valkey": False, "rediss": True, "valkeys": True}
_TLS_OPTIONS = frozenset(
    {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"}
)
_TEXT_OPTIONS = frozenset({"client_name", "sentinel_username", "sentinel_password"})
# The parts of a URL that an error may show: hosts, numeric ports and a path.
_HOST = r"(?:\[[0-9a-fA-F:.]*\]|[\w.-]*)(?::[0-9]*)?"
_HOST_AND_PORT = re.compile(r"[\w.-]*(?::[0-9]*)?")
_HARMLESS = re.compile(rf"{_HOST}(?:,{_HOST})*(?:/[\w./-]*)?")
_CERTIFICATE_CHECKS = ("required", "optional", "none")


class ServerKind(Enum):
    """How a server is reached."""

    TCP = auto()
    UNIX = auto()
    EMBEDDED = auto()
    SENTINEL = auto()
    CLUSTER = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Files and checks of a TLS connection; `None` means the default of the platform."""

    ca_certs: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    cert_reqs: str = "required"
    check_hostname: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One server or group of servers. Its text never holds a secret."""

    kind: ServerKind
    hosts: tuple[tuple[str, int], ...] = ()
    path: str = ""
    service: str = ""
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    sentinel_username: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)
    client_name: str | None = None
    tls: Tls | None = None

    def __str__(self) -> str:
        hosts = ",".join(f"[{h}]:{p}" if ":" in h else f"{h}:{p}" for h, p in self.hosts)
        scheme = "rediss" if self.tls else "redis"
        match self.kind:
            case ServerKind.TCP:
                return f"{scheme}://{hosts}/{self.db}"
            case ServerKind.UNIX:
                return f"unix://{self.path}"
            case ServerKind.EMBEDDED:
                return f"embedded:{self.path}"
            case ServerKind.SENTINEL:
                return f"{scheme}+sentinel://{hosts}/{self.service}"
            case ServerKind.CLUSTER:
                return f"{scheme}+cluster://{hosts}"


def parse(url: str) -> Address:
    """The address in a URL; raises an `OptionError` that never quotes a password."""
    if url.startswith("embedded:"):
        return _parse_embedded(url)
    if "://" not in url:
        raise OptionError("url", _mask(url), FORMS)
    return _Parser(url).address()


def _parse_embedded(url: str) -> Address:
    path = url.removeprefix("embedded:")
    if not path or path.startswith("//"):
        shown = _mask(url) if path else url
        raise OptionError(
            "url", shown, "expected a directory after embedded:, such as embedded:.tampu"
        )
    return Address(kind=ServerKind.EMBEDDED, path=path)


def _mask(url: str) -> str:
    """The URL without anything that may be a secret, however it is mistyped."""
    scheme, separator, rest = url.partition("://")
    location, _, options = rest.partition("?")
    shown = location.rpartition("@")[2]
    if not separator:
        return url if _HOST_AND_PORT.fullmatch(url) else "..."
    if "@" in options or not _HARMLESS.fullmatch(shown):
        return f"{scheme}://..." if scheme.replace("+", "").isalpha() else "..."
    return f"{scheme}://{shown}"


class _Parser:
    """Parses one URL; its errors name the wrong part and show the URL without secrets."""

    def __init__(self, url: str) -> None:
        self.shown = _mask(url)
        scheme, _, self.rest = url.partition("://")
        self.base, _, self.group = scheme.lower().partition("+")
        try:
            # This expects a single host; several are split below.
            self.parts = urlsplit("//" + self.rest)
        except ValueError:
            raise self._invalid(FORMS) from None
        self.options = dict(parse_qsl(self.parts.query, keep_blank_values=True))

    def address(self) -> Address:
        if self.base == "unix" and not self.group:
            return self._unix()
        if self.base not in _SECURE or self.group not in {"", "sentinel", "cluster"}:
            raise self._invalid(FORMS)
        match self.group:
            case "sentinel":
                return self._sentinel()
            case "cluster":
                return self._cluster()
            case _:
                return self._tcp()

    def _tcp(self) -> Address:
        hosts = self._hosts(DEFAULT_PORT)
        if len(hosts) != 1:
            raise self._invalid(
                "expected one host; for several use redis+sentinel:// or redis+cluster://"
            )
        return self._build(ServerKind.TCP, hosts=hosts, db=self._db(self.parts.path.strip("/")))

    def _unix(self) -> Address:
        path = unquote(self.parts.path)
        if path in {"", "/"}:
            raise self._invalid("expected the path of a socket, such as unix:///run/redis.sock")
        return self._build(ServerKind.UNIX, path=path, db=self._db(""))

    def _sentinel(self) -> Address:
        service, _, db = self.parts.path.strip("/").partition("/")
        if not service:
            raise self._invalid(
                "expected the name of a service, such as redis+sentinel://h1,h2/service"
            )
        return self._build(
            ServerKind.SENTINEL,
            hosts=self._hosts(DEFAULT_SENTINEL_PORT),
            service=unquote(service),
            db=self._db(db),
        )

    def _cluster(self) -> Address:
        if self._db(self.parts.path.strip("/")) != 0:
            raise self._invalid("a cluster has only database 0")
        return self._build(ServerKind.CLUSTER, hosts=self._hosts(DEFAULT_PORT))

    def _build(
        self,
        kind: ServerKind,
        *,
        hosts: tuple[tuple[str, int], ...] = (),
        path: str = "",
        service: str = "",
        db: int = 0,
    ) -> Address:
        username, password = self._credentials()
        tls = self._tls()
        text = {name: self.options.pop(name) for name in _TEXT_OPTIONS & self.options.keys()}
        if self.options:
            known = ", ".join(sorted({"db"} | _TLS_OPTIONS | _TEXT_OPTIONS))
            raise self._invalid(f"unknown option {min(self.options)!r}; a URL accepts {known}")
        return Address(
            kind=kind,
            hosts=hosts,
            path=path,
            service=service,
            db=db,
            username=username,
            password=password,
            tls=tls,
            **text,
        )

    def _credentials(self) -> tuple[str | None, str | None]:
        user_info, separator, _ = self.parts.netloc.rpartition("@")
        if not separator:
            return None, None
        user, _, password = user_info.partition(":")
        return unquote(user) or None, unquote(password) or None

    def _hosts(self, default_port: int) -> tuple[tuple[str, int], ...]:
        names = self.parts.netloc.rpartition("@")[2].split(",")
        return tuple(self._host(name, default_port) for name in names)

    def _host(self, text: str, default_port: int) -> tuple[str, int]:
        try:
            parts = urlsplit("//" + text)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise self._invalid("expected a port from 1 to 65535 after each host") from None
        if not host:
            raise self._invalid("expected a host, such as redis://localhost:6379")
        if port == 0:
            raise self._invalid("expected a port from 1 to 65535 after each host")
        return host, port or default_port

    def _db(self, path: str) -> int:
        text = self.options.pop("db", None) or path or "0"
        if not (text.isascii() and text.isdigit()):
            raise self._invalid(
                "expected a database number after the host, such as redis://localhost/0"
            )
        return int(text)

    def _tls(self) -> Tls | None:
        given = {name: self.options.pop(name) for name in _TLS_OPTIONS & self.options.keys()}
        if not _SECURE.get(self.base, False):
            if given:
                raise self._invalid(f"{min(given)} needs TLS; use rediss://")
            return None
        cert_reqs = given.get("ssl_cert_reqs", "required")
        if cert_reqs not in _CERTIFICATE_CHECKS:
            raise self._invalid(f"ssl_cert_reqs must be one of {', '.join(_CERTIFICATE_CHECKS)}")
        check = given.get("ssl_check_hostname", "true").lower()
        if check not in {"true", "false"}:
            raise self._invalid("ssl_check_hostname must be true or false")
        return Tls(
            ca_certs=given.get("ssl_ca_certs"),
            certfile=given.get("ssl_certfile"),
            keyfile=given.get("ssl_keyfile"),
            cert_reqs=cert_reqs,
            check_hostname=check == "true" and cert_reqs == "required",
        )

    def _invalid(self, problem: str) -> OptionError:
        return OptionError("url", self.shown, problem)
