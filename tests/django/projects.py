"""A project of Django whose programs are run, by this interpreter or one with another Django."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tests.postgres import Database
from tests.servers import ROOT
from tests.waiting import block_until

FOLDER: Final = Path(__file__).parent / "project"
_LIMIT_S: Final = 110


@dataclass(frozen=True)
class Project:
    """The programs of the project, with settings of the test's own."""

    home: Path
    server: str
    given: dict[str, Any] = field(default_factory=dict)
    python: Path = Path(sys.executable)
    folder: Path = FOLDER
    has_settings: bool = True  # in the environment
    programs: dict[str, "subprocess.Popen[str]"] = field(default_factory=dict)

    def with_settings(self, **given: object) -> "Project":
        """The same project with other settings."""
        return replace(self, given={**self.given, **given})

    def on(self, database: Database, **given: object) -> "Project":
        """The same project on PostgreSQL."""
        where = {"HOST": str(database.folder), "NAME": database.name}
        return self.with_settings(postgres=where, **given)

    @property
    def environment(self) -> Mapping[str, str]:
        """What its programs find."""
        own = {
            "PROJECT_HOME": str(self.home),
            "PROJECT": json.dumps(self.given),
            "SERVER": self.server,
            "PYTHONPATH": str(ROOT / "src") if self.python == Path(sys.executable) else "",
            "DJANGO_SETTINGS_MODULE": "settings",
        }
        if not self.has_settings:
            del own["DJANGO_SETTINGS_MODULE"]
        return {**os.environ, **own}

    def ask(self, scenario: str, *arguments: object) -> Any:  # noqa: ANN401 - what it returns
        """What a function of `scenarios.py` returns, in a program of the project."""
        key = json.dumps(self.given, sort_keys=True)
        if key not in self.programs:
            self.programs[key] = subprocess.Popen(
                [self.python, "scenarios.py"],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        program = self.programs[key]
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdin.write(json.dumps([scenario, arguments]) + "\n")
        program.stdin.flush()
        answer, problem = json.loads(program.stdout.readline())
        assert problem is None, problem
        return answer

    def close(self) -> None:
        """End what `ask` has started."""
        for each in self.programs.values():
            each.communicate("")

    def manage(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """`manage.py` with these arguments, to its end."""
        return self.python_run("manage.py", *arguments)

    def examine(self, backend: str = "default") -> "subprocess.CompletedProcess[str]":
        """`tampu doctor` for a backend."""
        return self.python_run("-m", "tampu", "doctor", f"tampu.django.worker:{backend}")

    def work(self, *options: str) -> str:
        """Run a worker until there is nothing to do; its log."""
        done = self.manage("tampu_worker", "--burst", *options)
        assert done.returncode == 0, done.stderr
        return done.stderr

    @contextmanager
    def worker(self, *options: str) -> Iterator["RunningWorker"]:
        """A worker inside the block."""
        with (self.home / "worker.log").open("w+") as log:
            command = [str(self.python), "manage.py", "tampu_worker", *options]
            process = subprocess.Popen(
                command, cwd=self.folder, env=self.environment, stdout=log, stderr=log, text=True
            )
            running = RunningWorker(process, Path(log.name))
            try:
                running.wait_for("Queues")
                yield running
            finally:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(timeout=60)
                finally:
                    process.kill()

    def python_run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """Python with these arguments, to its end."""
        return subprocess.run(
            [self.python, *command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=_LIMIT_S,
        )


@dataclass(frozen=True)
class RunningWorker:
    """`manage.py tampu_worker`, and what it has printed."""

    process: "subprocess.Popen[str]"
    log: Path

    def wait_for(self, words: str, times: int = 1) -> None:
        """Return when it has printed them so often."""

        def is_there() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return self.log.read_text().count(words) >= times

        block_until(is_there, within=60, sentence=f"the worker says {words!r}")
