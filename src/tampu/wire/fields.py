"""The fields of a stream entry, as the server sends them: name, value, name, value."""

from collections.abc import Sequence

from tampu.errors import DecodeError, EncodeError


def pair_fields(flat: Sequence[bytes], *, what: str) -> dict[bytes, bytes]:
    """The fields by name, in order. If a field appears twice, the first value wins."""
    if len(flat) % 2:
        raise DecodeError(what, "a field has no value")
    fields: dict[bytes, bytes] = {}
    for name, value in zip(flat[::2], flat[1::2], strict=True):
        fields.setdefault(name, value)
    return fields


def encode_name(name: str) -> bytes:
    """A job's name in UTF-8, or `EncodeError`."""
    try:
        return name.encode()
    except UnicodeEncodeError:
        raise EncodeError("job name", "it contains a lone surrogate") from None


def decode_text(value: bytes) -> str:
    """Text for display; invalid UTF-8 becomes the replacement character."""
    return value.decode("utf-8", "replace")


def encode_text(text: str) -> bytes:
    """Text in UTF-8. Never fails: lone surrogates are replaced."""
    return text.encode("utf-8", "replace")


def clip_text(text: str, max_bytes: int) -> bytes:
    """The text in UTF-8, cut after `max_bytes`."""
    data = encode_text(text)
    if len(data) <= max_bytes:
        return data
    return data[:max_bytes].decode("utf-8", "ignore").encode()


def clip_text_front(text: str, max_bytes: int) -> bytes:
    """The end of the text, at most `max_bytes`: the last lines of a traceback say the most."""
    data = encode_text(text)
    if len(data) <= max_bytes:
        return data
    return data[len(data) - max_bytes :].decode("utf-8", "ignore").encode()


def cut_text(text: str, max_bytes: int) -> str:
    """The text, cut after so many bytes of UTF-8; lone surrogates are replaced."""
    if len(text) <= max_bytes and text.isascii():
        return text  # most are: a tenth of the time
    return decode_text(clip_text(text, max_bytes))


def cut_text_front(text: str, max_bytes: int) -> str:
    """The end of the text, at most so many bytes; lone surrogates are replaced."""
    if len(text) <= max_bytes and text.isascii():
        return text
    return decode_text(clip_text_front(text, max_bytes))


def decode_number(value: bytes) -> int | str:
    """The integer in the text, or the text if it is not an integer."""
    digits = value.removeprefix(b"-")
    if digits.isdigit() and len(digits) <= 20:
        return int(value)
    return decode_text(value)
