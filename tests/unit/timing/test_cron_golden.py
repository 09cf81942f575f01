"""Every rule that was measured on ChasquiMQ; the docs list where we differ."""

import re
from typing import Any, Final

import pytest

from tampu.errors import OptionError
from tampu.timing import Cron
from tampu.util.clock import instant
from tests.golden.chasquimq import golden
from tests.guide.pages import DOCS

REFUSED: Final = "refused"


def _read_table() -> dict[str, tuple[str, str, str]]:
    """The rows of the page: from case to rule, their instant, our instant."""
    page = (DOCS / "internals" / "cron.md").read_text("utf-8")
    section = page.split("\n## Where ChasquiMQ differs\n", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| `(.+?)` \| `(.+?)` \| (.+?) \| (.+?) \| .+ \|$", section, re.MULTILINE)
    return {case: (rule, theirs, ours) for case, rule, theirs, ours in rows}


TABLE: Final = _read_table()


def _our_instants(record: dict[str, Any]) -> list[int | None]:
    try:
        rule = Cron(record["expression"], tz=record["tz"] or "")
    except OptionError:
        return []
    found: list[int | None] = []
    at_ms = record["from_ms"]
    for _ in record["next_ms"] or [None]:
        at_ms = rule.next_ms(at_ms)
        found.append(at_ms)
    return found


def _instant_text(instants: list[int | None], index: int) -> str:
    at_ms = instants[index] if instants else None
    if at_ms is None:
        return REFUSED
    return instant(at_ms).replace(tzinfo=None).isoformat(" ", "milliseconds")


@pytest.mark.parametrize("record", golden("cron"))
def test_a_rule_has_their_instants_or_the_docs_list_the_difference(record: dict[str, Any]) -> None:
    ours, theirs = _our_instants(record), record["next_ms"]
    if ours == theirs:
        assert record["case"] not in TABLE
        return
    pairs = zip(ours, theirs, strict=False)
    first = next((index for index, (a, b) in enumerate(pairs) if a != b), 0)
    documented = (record["expression"], _instant_text(theirs, first), _instant_text(ours, first))
    assert TABLE.get(record["case"]) == documented


def test_the_docs_list_only_measured_cases() -> None:
    measured = {parameter.id for parameter in golden("cron")}
    assert len(measured) == 60
    assert TABLE.keys() <= measured
