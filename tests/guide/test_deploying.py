"""The unit, the container and the pod on the page about deploying: they give the grace its time."""

import json
import re
import shlex
from configparser import RawConfigParser
from itertools import pairwise

from tampu.util.clock import to_s
from tests.guide.pages import GUIDE, block_of

PAGE = GUIDE / "deploying.md"
MARGIN_S = 35  # what the page says that a stop may take beyond the grace


def grace_s(words: list[str]) -> float:
    """The grace that a command line gives."""
    (given,) = [value for option, value in pairwise(words) if option == "--grace"]
    return to_s("grace", given)


def list_behind(word: str, text: str) -> list[str]:
    """The list of texts that stands behind a word at the beginning of a line."""
    (found,) = re.findall(rf"^\s*{word} (\[.*\])$", text, re.MULTILINE)
    words: list[str] = json.loads(found)
    return words


def test_the_unit_can_be_read_and_waits_for_the_grace() -> None:
    unit = RawConfigParser()
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(block_of(PAGE, "systemd", "ini"))
    service = unit["Service"]
    words = shlex.split(service["ExecStart"])
    assert words[1:3] == ["worker", "shop:app"]
    assert int(service["TimeoutStopSec"]) >= grace_s(words) + MARGIN_S
    assert (service["KillSignal"], service["KillMode"]) == ("SIGTERM", "mixed")


def test_the_container_runs_the_worker_itself_and_not_as_root() -> None:
    text = block_of(PAGE, "Containers", "dockerfile")
    entry, options = list_behind("ENTRYPOINT", text), list_behind("CMD", text)
    assert entry == ["tampu", "worker", "shop:app"]
    assert text.index("\nUSER 10001\n") < text.index("\nENTRYPOINT")
    (stop_s,) = re.findall(r"`docker stop -t (\d+)`", PAGE.read_text("utf-8"))
    assert int(stop_s) >= grace_s(options) + MARGIN_S
    (file,) = [value for option, value in pairwise(options) if option == "--health-file"]
    assert f"find {file} " in text


def test_the_pod_waits_for_the_grace_and_is_probed_where_the_worker_answers() -> None:
    text = block_of(PAGE, "Kubernetes", "yaml")
    options = list_behind("args:", text)
    (wait_s,) = re.findall(r"terminationGracePeriodSeconds: (\d+)", text)
    assert int(wait_s) >= grace_s(options) + MARGIN_S
    (port,) = [value for option, value in pairwise(options) if option == "--health-port"]
    assert f"{{name: health, containerPort: {port}}}" in text
    assert re.findall(r"httpGet: \{path: (\S+), port: health\}", text) == ["/ready", "/live"]
    assert ("--health-host", "0.0.0.0") in pairwise(options)  # noqa: S104 - as the page has it
