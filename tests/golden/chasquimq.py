"""The captured bytes of the peer, section by section, as test parameters."""

import json
from pathlib import Path
from typing import Any

import pytest

from tampu.wire.envelope import Envelope, RetryOverride, WireBackoff

_ALL: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))


def golden(section: str, **wanted: str) -> list[Any]:
    """Every record of a section with the wanted values, each as one parameter named by its case."""
    records = [
        record
        for record in _ALL[section]
        if all(record[field] == value for field, value in wanted.items())
    ]
    assert records, f"no golden record in {section} with {wanted}"
    return [pytest.param(record, id=record["case"]) for record in records]


def envelope_of(stated: dict[str, Any]) -> Envelope:
    """The envelope that a record states in words."""
    return Envelope(
        id=stated["id"],
        payload=bytes.fromhex(stated["payload_hex"]),
        created_at_ms=stated["created_at_ms"],
        attempt=stated["attempt"],
        retry=_retry_of(stated["retry"]) if "retry" in stated else None,
    )


def _retry_of(stated: list[Any]) -> RetryOverride:
    max_attempts, backoff = stated
    return RetryOverride(max_attempts, None if backoff is None else WireBackoff(*backoff))


def fields_of(record: dict[str, Any]) -> list[bytes]:
    """The fields of a captured entry as the server sends them: name, value, name, value."""
    return [
        part
        for name, value_hex in record["fields"]
        for part in (name.encode(), bytes.fromhex(value_hex))
    ]
