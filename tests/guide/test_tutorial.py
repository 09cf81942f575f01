"""The tutorial, followed word for word: its files are saved, its commands are typed."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final
from urllib.request import urlopen

import pytest

from tests.guide.pages import DOCS
from tests.servers import RunningServer, free_port
from tests.waiting import block_until

STEPS: Final = [
    "first-task",
    "retries",
    "delays-and-schedules",
    "limits-and-flows",
    "production",
]
STAYING: Final = ("tampu worker", "tampu dashboard")
"""What runs until Ctrl-C."""
NOT_TYPED: Final = ("pip install", "export TAMPU_URL")
"""What a test has done already."""
_BLOCK: Final = re.compile(
    r"^```(\w+)\n(.*?)^```\n(\s*```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL
)


@dataclass
class Reader:
    """Somebody with an empty directory who follows a page."""

    home: Path
    surroundings: dict[str, str]
    ports: dict[str, str] = field(default_factory=dict)
    staying: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def follows(self, page: str) -> None:
        for language, text, _, output in _BLOCK.findall(page):
            if language == "python":
                name = re.match(r"# (\w+\.py)\n", text)
                assert name is not None, "every block is a file"
                (self.home / name[1]).write_text(text, "utf-8")
            elif language == "sh":
                printed = "".join(map(self.types, text.splitlines()))
                assert not output or printed == output, text

    def types(self, line: str) -> str:
        for port in re.findall(r"\b(?:8081|8321)\b", line):
            line = line.replace(port, self.ports.setdefault(port, str(free_port())))
        if line.startswith(NOT_TYPED):
            return ""
        if line.startswith(STAYING):
            return self._leaves_running(line)
        if line.startswith("curl "):
            return self._asks(line.split()[1])
        done = subprocess.run(
            self._words(line),
            cwd=self.home,
            env=self.surroundings,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def ends(self) -> list[int]:
        """Stop what was left running; their exit codes."""
        for process in self.staying:
            process.terminate()
        return [process.wait(60) for process in self.staying]

    def _leaves_running(self, line: str) -> str:
        log = self.home / f"{len(self.staying)}.log"
        with log.open("w") as out:
            process = subprocess.Popen(
                self._words(line), cwd=self.home, env=self.surroundings, stdout=out, stderr=out
            )
        self.staying.append(process)
        block_until(lambda: log.stat().st_size > 0, within=60, sentence=f"{line} has started")
        return ""

    def _asks(self, address: str) -> str:
        def answer() -> str:
            try:
                with urlopen(address, timeout=10) as got:  # noqa: S310 - loopback
                    return str(got.read(), "utf-8")
            except OSError:
                return ""

        block_until(lambda: bool(answer()), within=60, sentence=f"{address} answers")
        return answer()

    def _words(self, line: str) -> list[str]:
        program, *rest = shlex.split(line)
        if program == "python":
            return [sys.executable, *rest]
        if program == "pytest":
            options = ("-p", "no:cacheprovider", "-p", "no:valkey")
            scope = ("-o", "asyncio_default_fixture_loop_scope=function")
            return [sys.executable, "-m", "pytest", *options, *scope, *rest]
        return [str(Path(sys.executable).with_name(program)), *rest]


@pytest.fixture
def reader(running: RunningServer, tmp_path: Path) -> Iterator[Reader]:
    made = Reader(tmp_path, {**os.environ, "TAMPU_URL": running.url})
    yield made
    for process in made.staying:
        process.kill()
        process.wait()


@pytest.mark.parametrize("step", STEPS)
def test_a_step_does_what_it_says(reader: Reader, step: str) -> None:
    reader.follows((DOCS / "tutorial" / f"{step}.md").read_text("utf-8"))
    codes = reader.ends()
    assert codes
    assert set(codes) <= {0, 130}


def test_every_step_is_followed_and_leads_to_the_next() -> None:
    index = (DOCS / "tutorial" / "README.md").read_text("utf-8")
    assert re.findall(r"^\d\. \[.+\]\((.+)\.md\)", index, re.MULTILINE) == STEPS
    for step, following in pairwise(STEPS):
        page = (DOCS / "tutorial" / f"{step}.md").read_text("utf-8")
        assert f"({following}.md)" in page.rpartition("Next: ")[2]
