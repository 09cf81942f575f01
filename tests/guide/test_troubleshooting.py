"""The page on troubleshooting: every error is there, with the text that it really prints."""

import re
from typing import Final

import pytest

from tampu import errors
from tampu.errors import TampuError
from tests.guide.pages import DOCS
from tests.servers import ROOT

PAGE: Final = (DOCS / "troubleshooting.md").read_text("utf-8")
BASES: Final = {errors.TampuError, errors.ServerError, errors.StreamError}


class Given:
    def __repr__(self) -> str:
        return "<given>"


def refused(kind: type[errors.CommandRefused], text: str) -> errors.CommandRefused:
    code, _, problem = text.partition(" ")
    return kind("<server>", code, problem)


EXAMPLES: Final[list[TampuError]] = [
    errors.OptionError("<option>", Given(), "<problem>"),
    errors.ArgumentError("<task>", "<argument>", "<problem>"),
    errors.EncodeError("<what>", "<problem>"),
    errors.DecodeError("<what>", "<problem>"),
    errors.MissingExtra("<extra>", "<package>"),
    errors.JobFailed("<job_id>", reason="<reason>", error_type="<error_type>", message="<message>"),
    errors.JobCancelled("<job_id>"),
    errors.JobExists("<job_id>", "<key>"),
    errors.ResultTimeout("<job_id>", 10),
    errors.NoStream("<job_id>", "<problem>"),
    errors.StreamGap("<job_id>", "<next_id>"),
    errors.StreamRestarted("<job_id>", 2),
    errors.WrongContext("<action>", "<reason>"),
    errors.StoreFailed("<store>", "<problem>"),
    errors.OutboxFailed("<table>", "<problem>"),
    errors.ServerUnreachable("<server>", "<problem>"),
    errors.ConnectionLost("<server>", "<problem>"),
    errors.TlsFailed("<server>", "<problem>"),
    errors.AccessDenied("<server>", "<problem>"),
    errors.ServerTooOld("<server>", "<version>", "<needed>"),
    errors.EmbeddedFailed("<server>", "<problem>"),
    errors.Closed("<server>"),
    errors.NotDurable("<server>", "<durability>"),
    refused(errors.CommandRefused, "<code> <problem>"),
    refused(errors.ServerBusy, "LOADING <problem>"),
    errors.UnknownLimit("<server>", "NOLIMIT", "<limit>"),
    refused(errors.QueueFull, "OOM <problem>"),
]


def kinds() -> set[type[TampuError]]:
    """Every error that can be raised."""
    found = {kind for kind in vars(errors).values() if isinstance(kind, type)}
    return {kind for kind in found if issubclass(kind, TampuError)} - BASES


def texts_under(heading: str) -> list[str]:
    """The lines that the page shows first under a heading."""
    section = PAGE.split(f"\n### {heading}\n", 1)[1].split("\n## ", 1)[0].split("\n### ", 1)[0]
    (block, *_) = re.findall(r"^```text\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return str(block).splitlines()


def test_every_error_has_an_example_here() -> None:
    assert {type(example) for example in EXAMPLES} == kinds()


def test_every_error_has_a_heading_and_there_are_no_others() -> None:
    named = re.findall(r"^### `(\w+)`$", PAGE, re.MULTILINE)
    assert sorted(named) == sorted(kind.__name__ for kind in kinds())


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: type(each).__name__)
def test_the_text_is_the_one_that_is_printed(example: TampuError) -> None:
    assert texts_under(f"`{type(example).__name__}`")[0] == str(example)


def test_every_base_is_named() -> None:
    last = PAGE.rpartition("\n## Bases\n")[2]
    assert all(f"`{base.__name__}`" in last for base in BASES)


def test_the_lines_of_logs_and_refusals_are_in_the_code() -> None:
    code = "".join(
        path.read_text("utf-8")
        for kind in ("*.py", "*.lua")
        for path in sorted((ROOT / "src").rglob(kind))
    )
    code = re.sub(r'"\n\s*f?"', "", code)  # a text that goes on in the next line
    symptoms = PAGE.split("\n## Symptoms\n", 1)[1].split("\n## Errors of your call\n", 1)[0]
    shown = re.findall(r"^```text\n(.*?)^```$", symptoms, re.MULTILINE | re.DOTALL)
    lines = [line for block in shown for line in block.splitlines()]
    lines += [line.partition(": ")[2] for line in texts_under("`QueueFull`")[1:]]
    assert len(lines) > 5
    for line in lines:
        parts = [part.strip(" ':") for part in re.split(r"<\w+>", line)]
        assert all(part in code for part in parts), line
