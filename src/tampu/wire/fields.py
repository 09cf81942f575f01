"""The fields of a stream entry, as the server sends them: name, value, name, value."""

from collections.abc import Sequence

from tampu.errors import DecodeError, EncodeError


def pair_fields(flat: Sequence[bytes], *, what: str) -> dict[bytes, bytes]:
    """The value of each field by its name, in order; of a field that comes twice, the first."""
    if len(flat) % 2:
        raise DecodeError(what, "a field of it has no value")
    fields: dict[bytes, bytes] = {}
    for name, value in zip(flat[::2], flat[1::2], strict=True):
        fields.setdefault(name, value)
    return fields


def encode_name(name: str) -> bytes:
    """A job's name in UTF-8; `EncodeError` for one that `check_job_name` would not have passed."""
    try:
        return name.encode()
    except UnicodeEncodeError:
        raise EncodeError("job name", "it holds a lone surrogate") from None


def show_text(value: bytes) -> str:
    """Text for people to read; bytes that are not UTF-8 become the replacement character."""
    return value.decode("utf-8", "replace")


def tell_text(text: str) -> bytes:
    """Text for people to read, in UTF-8; never fails, since telling must not fail a job."""
    return text.encode("utf-8", "replace")


def clip_text(text: str, max_bytes: int) -> bytes:
    """The text in UTF-8, cut behind so many bytes; an exception's may be of any length."""
    data = tell_text(text)
    if len(data) <= max_bytes:
        return data
    return data[:max_bytes].decode("utf-8", "ignore").encode()


def clip_text_front(text: str, max_bytes: int) -> bytes:
    """As `clip_text`, but the end is kept: what a traceback says is in its last lines."""
    data = tell_text(text)
    if len(data) <= max_bytes:
        return data
    return data[len(data) - max_bytes :].decode("utf-8", "ignore").encode()


def show_number(value: bytes) -> int | str:
    """The whole number that the text spells, or the text if it spells none."""
    digits = value.removeprefix(b"-")
    if digits.isdigit() and len(digits) <= 20:
        return int(value)
    return show_text(value)
