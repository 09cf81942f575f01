"""Every form of URL, and every mistake in one."""

import pytest

from tampu.errors import OptionError
from tampu.server.address import Address, ServerKind, Tls, parse

SECRET = "open-sesame"  # noqa: S105 - must not show up anywhere


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://localhost", Address(kind=ServerKind.TCP, hosts=(("localhost", 6379),))),
        ("redis://h:7000/3", Address(kind=ServerKind.TCP, hosts=(("h", 7000),), db=3)),
        ("redis://h?db=4", Address(kind=ServerKind.TCP, hosts=(("h", 6379),), db=4)),
        ("redis://[::1]:7000", Address(kind=ServerKind.TCP, hosts=(("::1", 7000),))),
        ("REDIS://h", Address(kind=ServerKind.TCP, hosts=(("h", 6379),))),
        ("valkey://h", Address(kind=ServerKind.TCP, hosts=(("h", 6379),))),
        ("rediss://h", Address(kind=ServerKind.TCP, hosts=(("h", 6379),), tls=Tls())),
        ("valkeys://h", Address(kind=ServerKind.TCP, hosts=(("h", 6379),), tls=Tls())),
        ("unix:///run/r.sock", Address(kind=ServerKind.UNIX, path="/run/r.sock")),
        ("unix:///run/r.sock?db=2", Address(kind=ServerKind.UNIX, path="/run/r.sock", db=2)),
        ("unix:///with%20space", Address(kind=ServerKind.UNIX, path="/with space")),
        ("embedded:.tampu", Address(kind=ServerKind.EMBEDDED, path=".tampu")),
        ("embedded:/var/lib/tampu", Address(kind=ServerKind.EMBEDDED, path="/var/lib/tampu")),
        (
            "redis+sentinel://a,b:27000/house",
            Address(kind=ServerKind.SENTINEL, hosts=(("a", 26379), ("b", 27000)), service="house"),
        ),
        (
            "rediss+sentinel://a/house/2",
            Address(
                kind=ServerKind.SENTINEL, hosts=(("a", 26379),), service="house", db=2, tls=Tls()
            ),
        ),
        (
            "redis+cluster://a:1,b:2",
            Address(kind=ServerKind.CLUSTER, hosts=(("a", 1), ("b", 2))),
        ),
        (
            "rediss://h?ssl_ca_certs=/ca&ssl_certfile=/c&ssl_keyfile=/k",
            Address(
                kind=ServerKind.TCP,
                hosts=(("h", 6379),),
                tls=Tls(ca_certs="/ca", certfile="/c", keyfile="/k"),
            ),
        ),
        (
            "rediss://h?ssl_cert_reqs=none",
            Address(
                kind=ServerKind.TCP,
                hosts=(("h", 6379),),
                tls=Tls(cert_reqs="none", check_hostname=False),
            ),
        ),
        (
            "redis://h?client_name=me",
            Address(kind=ServerKind.TCP, hosts=(("h", 6379),), client_name="me"),
        ),
    ],
)
def test_a_url_is_parsed(url: str, expected: Address) -> None:
    assert parse(url) == expected


@pytest.mark.parametrize(
    ("url", "user", "password"),
    [
        ("redis://:pw@h", None, "pw"),
        ("redis://u:pw@h", "u", "pw"),
        ("redis://u@h", "u", None),
        ("redis://u%40x:p%2Fw%3A@h", "u@x", "p/w:"),
        ("unix://u:pw@/run/s", "u", "pw"),
        ("redis+cluster://u:pw@a,b", "u", "pw"),
        ("redis+sentinel://u:p@w@a/house", "u", "p@w"),
    ],
)
def test_user_and_password_are_parsed(url: str, user: str | None, password: str | None) -> None:
    address = parse(url)
    assert (address.username, address.password) == (user, password)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("", "expected redis://"),
        ("localhost:6379", "expected redis://"),
        ("http://h", "expected redis://"),
        ("redis+what://h", "expected redis://"),
        ("unix+cluster:///x", "expected redis://"),
        ("redis://", "expected a host"),
        ("redis://:6379", "expected a host"),
        ("redis://h:port", "port from 1 to 65535"),
        ("redis://h:99999", "port from 1 to 65535"),
        ("redis://h:0", "port from 1 to 65535"),
        ("redis://h/one", "database number"),
        ("redis://h/-1", "database number"),
        ("redis://h?db=x", "database number"),
        ("redis://a,b", "expected one host"),
        ("redis+sentinel://a", "name of a service"),
        ("redis+sentinel://a,/house", "expected a host"),
        ("redis+cluster://a/1", "only database 0"),
        ("unix://", "path of a socket"),
        ("embedded:", "directory after embedded:"),
        ("embedded://x", "directory after embedded:"),
        ("redis://h?colour=red", "unknown option 'colour'"),
        ("redis://h?ssl_ca_certs=/ca", "needs TLS"),
        ("rediss://h?ssl_cert_reqs=maybe", "required, optional, none"),
        ("rediss://h?ssl_check_hostname=maybe", "true or false"),
    ],
)
def test_an_invalid_url_is_refused_with_what_is_expected(url: str, problem: str) -> None:
    with pytest.raises(OptionError, match=r"^Invalid url ") as caught:
        parse(url)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        f"http://u:{SECRET}@h",
        f"redis://u:{SECRET}@h:port",
        f"redis://u:{SECRET}@h?colour={SECRET}",
        f"u:{SECRET}@h",
        f"redis+sentinel://:{SECRET}@a",
        f"redis://h/0?password=a@{SECRET}",
        f"redis://u:{SECRET}?x@h:port",
        f"redis://:{SECRET}",
        f"redis:/:{SECRET}",
        f"redis:{SECRET}",
        f"embedded://x?password={SECRET}",
        f"redis://u:{SECRET}\u2100@h",  # a character that urlsplit quotes the password for
        f"redis://u:[{SECRET}@h",
        "redis://[::1:6379",
    ],
)
def test_an_error_shows_no_secret(url: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse(url)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"redis://u:{SECRET}@h:7000/3", "redis://h:7000/3"),
        (f"rediss://:{SECRET}@h", "rediss://h:6379/0"),
        (f"unix://:{SECRET}@/run/s", "unix:///run/s"),
        ("redis://[::1]", "redis://[::1]:6379/0"),
        ("embedded:.tampu", "embedded:.tampu"),
        (
            f"redis+sentinel://u:{SECRET}@a,b/house?sentinel_password={SECRET}",
            "redis+sentinel://a:26379,b:26379/house",
        ),
        (f"redis+cluster://:{SECRET}@a,b", "redis+cluster://a:6379,b:6379"),
    ],
)
def test_an_address_is_shown_without_its_secrets(url: str, shown: str) -> None:
    address = parse(url)
    assert str(address) == shown
    assert SECRET not in repr(address)
