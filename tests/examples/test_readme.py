"""The README, followed word for word: in an empty directory, with a fresh virtual environment."""

import os
import re
import shlex
import signal
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.embedded import end_server
from tests.examples.programs import surroundings
from tests.guide.pages import blocks_of
from tests.servers import IN_CI, ROOT
from tests.waiting import block_until

README: Final = ROOT / "README.md"
COMMANDS: Final = [
    line
    for block in re.findall(r"```sh\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    for line in block.splitlines()
]
RELEASED: Final = "'tampu[embedded]'"
NO_NETWORK: Final = ("No matching distribution", "Could not find a version", "Connection")


@dataclass(frozen=True, slots=True)
class Newcomer:
    """Somebody with an empty directory and an environment of his own."""

    home: Path
    environment: Path

    def types(self, command: str, within_s: float = 60) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=self.home,
            env=self._surroundings(),
            capture_output=True,
            text=True,
            timeout=within_s,
            check=False,
        )

    @contextmanager
    def leaves_running(self, command: str) -> Iterator[Path]:
        """What it prints, while it runs; Ctrl-C ends it."""
        log = self.home / "worker.log"
        with log.open("w") as out:
            process = subprocess.Popen(
                shlex.split(f"{self.environment}/bin/{command}"),
                cwd=self.home,
                env=self._surroundings(),
                stdout=out,
                stderr=out,
            )
        try:
            yield log
            process.send_signal(signal.SIGINT)
            assert process.wait(30) in {0, 130}, log.read_text()
        finally:
            process.kill()
            process.wait()

    def _surroundings(self) -> dict[str, str]:
        path = f"{self.environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return surroundings(PATH=path, VIRTUAL_ENV=str(self.environment))


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment in which the README's install command was typed.

    There is no release, so this working tree stands for the name on the package index.
    """
    made = tmp_path_factory.mktemp("fresh") / "venv"
    venv.create(made, with_pip=True)
    (install,) = (command for command in COMMANDS if command.startswith("pip install"))
    assert RELEASED in install
    typed = install.replace(RELEASED, shlex.quote(f"{ROOT}[embedded]"))
    done = Newcomer(made.parent, made).types(typed, within_s=200)
    unreachable = any(told in done.stderr for told in NO_NETWORK)
    if done.returncode and unreachable and not IN_CI:
        pytest.skip("pip cannot reach a package index")
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture
def newcomer(environment: Path, tmp_path: Path) -> Iterator[Newcomer]:
    """With the README's program in his directory, and nothing else."""
    (block,) = blocks_of(README)
    (tmp_path / "shop.py").write_text(block.source, "utf-8")
    yield Newcomer(tmp_path, environment)
    end_server(tmp_path / ".tampu")


@pytest.mark.timeout(300)  # an environment is made and filled
def test_the_commands_of_the_readme_work(newcomer: Newcomer) -> None:
    (block,) = blocks_of(README)
    done = newcomer.types("python shop.py")
    assert (done.returncode, done.stdout, done.stderr) == (0, block.output, "")

    (demo,) = (command for command in COMMANDS if command == "tampu demo")
    shown = newcomer.types(demo)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "24 orders handled in " in shown.stdout

    worker, add, look = COMMANDS[COMMANDS.index("tampu worker shop:app") :][:3]
    before = newcomer.types(look).stdout.count("completed")
    with newcomer.leaves_running(worker) as log:
        added = newcomer.types(add)
        assert (added.returncode, added.stdout) == (0, "hello Bob\n"), added.stderr
        block_until(
            lambda: newcomer.types(look).stdout.count("completed") > before,
            within=60,
            sentence=f"the worker ran it; it says: {log.read_text()}",
        )


def test_the_quickstart_is_fifteen_lines_at_most() -> None:
    (block,) = blocks_of(README)
    assert len([line for line in block.source.splitlines() if line.strip()]) <= 15


def test_the_readme_names_the_python_that_the_package_asks_for() -> None:
    needed = re.search(r'requires-python = ">=([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert needed is not None
    assert f"Python {needed[1]} or newer" in README.read_text("utf-8")
    assert sys.version_info >= tuple(map(int, needed[1].split(".")))
