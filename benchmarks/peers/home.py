"""A peer's environment: made on first use, apart from ours and from all others."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.peers.pins import Pin

ROOT: Final = Path(__file__).resolve().parents[2]
HOMES: Final = ROOT / ".venv-peers"
_PROGRAM: Final = "benchmarks.peers.program"
_MAKE_LIMIT_S: Final = 300
_ASK_LIMIT_S: Final = 60


class Unavailable(Exception):
    """A peer cannot be had here; the text says why."""


@dataclass(frozen=True, slots=True)
class Home:
    """Where a peer is installed; ours is the environment that we run in."""

    pin: Pin
    folder: Path

    @property
    def python(self) -> Path:
        """The Python that sees the peer."""
        return self.folder / "bin" / "python" if self.pin.packages else Path(sys.executable)

    def command(self, side: str) -> list[str]:
        """What runs the peer as a producer ("add") or as a worker ("work")."""
        if self.pin.node:
            return ["node", str(Path(__file__).with_name(f"{self.pin.name}.mjs")), side]
        return [str(self.python), "-m", _PROGRAM, self.pin.name, side]

    def surroundings(self) -> dict[str, str]:
        """The environment variables that its programs start with."""
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "PEER_HOME": str(self.folder)}

    def versions(self) -> dict[str, str]:
        """What is installed there, the packages that came along included; or `Unavailable`."""
        if self.pin.node:
            told = json.loads(_output(["npm", "ls", "--all", "--json"], self.folder))
            return {name: each["version"] for name, each in told["dependencies"].items()}
        pip = [str(self.python), "-m", "pip", "--disable-pip-version-check", "list"]
        told = json.loads(_output([*pip, "--format", "json"], self.folder))
        return {each["name"]: each["version"] for each in told}


def find_home(pin: Pin) -> Home:
    """The peer's environment, made if it is not there or holds other versions."""
    home = Home(pin, HOMES / pin.name if pin.packages else ROOT)
    stamp = home.folder / ".made"
    wanted = " ".join(pin.packages)
    if not pin.packages or (stamp.exists() and stamp.read_text("utf-8") == wanted):
        return home
    print(f"  making an environment with {wanted} ...", flush=True)
    shutil.rmtree(home.folder, ignore_errors=True)
    home.folder.mkdir(parents=True)
    for command in _making(home):
        _made(command, home.folder, wanted)
    stamp.write_text(wanted, "utf-8")
    return home


def _making(home: Home) -> list[list[str]]:
    packages = home.pin.packages
    if home.pin.node:
        quiet = ["--silent", "--no-audit", "--no-fund"]
        return [["npm", "init", "--yes", "--silent"], ["npm", "install", *quiet, *packages]]
    return [
        [sys.executable, "-m", "venv", str(home.folder)],
        [str(home.python), "-m", "pip", "install", "--quiet", *packages],
    ]


def _made(command: Sequence[str], folder: Path, wanted: str) -> None:
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=_MAKE_LIMIT_S)
    except FileNotFoundError as error:
        raise Unavailable(f"{command[0]} is not on this machine") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"{wanted} cannot be installed ({type(error).__name__})") from error


def _output(command: Sequence[str], folder: Path) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder, check=True, capture_output=True, text=True, timeout=_ASK_LIMIT_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(
            f"{command[0]} does not list packages ({type(error).__name__})"
        ) from error
    return done.stdout
