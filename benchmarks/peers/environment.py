"""The environment of a peer: created on first use, separate from ours and from the others."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.peers.catalog import Peer

ROOT: Final = Path(__file__).resolve().parents[2]
ENVIRONMENTS: Final = ROOT / ".venv-peers"
_PROGRAM: Final = "benchmarks.peers.program"
_INSTALL_LIMIT_S: Final = 300
_LIST_LIMIT_S: Final = 60


class Unavailable(Exception):
    """A peer cannot run here. The text says why."""


@dataclass(frozen=True, slots=True)
class PeerEnvironment:
    """Where a peer is installed. tampu uses the environment that this process runs in."""

    peer: Peer
    folder: Path

    @property
    def python(self) -> Path:
        """The Python interpreter that can import the peer."""
        return self.folder / "bin" / "python" if self.peer.packages else Path(sys.executable)

    def command(self, role: str) -> list[str]:
        """The command that runs the peer as a producer ("add") or as a worker ("work")."""
        if self.peer.node:
            return ["node", str(Path(__file__).with_name(f"{self.peer.name}.mjs")), role]
        return [str(self.python), "-m", _PROGRAM, self.peer.name, role]

    def variables(self) -> dict[str, str]:
        """The environment variables of the peer's programs."""
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "PEER_HOME": str(self.folder)}

    def versions(self) -> dict[str, str]:
        """The version of every installed package, or `Unavailable`."""
        if self.peer.node:
            listed = json.loads(_output_of(["npm", "ls", "--all", "--json"], self.folder))
            return {name: each["version"] for name, each in listed["dependencies"].items()}
        pip = [str(self.python), "-m", "pip", "--disable-pip-version-check", "list"]
        listed = json.loads(_output_of([*pip, "--format", "json"], self.folder))
        return {each["name"]: each["version"] for each in listed}


def prepare_environment(peer: Peer) -> PeerEnvironment:
    """The environment of a peer. It is created if it is missing or has other versions."""
    environment = PeerEnvironment(peer, ENVIRONMENTS / peer.name if peer.packages else ROOT)
    stamp = environment.folder / ".made"
    packages = " ".join(peer.packages)
    if not peer.packages or (stamp.exists() and stamp.read_text("utf-8") == packages):
        return environment
    print(f"  creating an environment with {packages} ...", flush=True)
    shutil.rmtree(environment.folder, ignore_errors=True)
    environment.folder.mkdir(parents=True)
    for command in _install_commands(environment):
        _run(command, environment.folder, packages)
    stamp.write_text(packages, "utf-8")
    return environment


def _install_commands(environment: PeerEnvironment) -> list[list[str]]:
    packages = environment.peer.packages
    if environment.peer.node:
        quiet = ["--silent", "--no-audit", "--no-fund"]
        return [["npm", "init", "--yes", "--silent"], ["npm", "install", *quiet, *packages]]
    return [
        [sys.executable, "-m", "venv", str(environment.folder)],
        [str(environment.python), "-m", "pip", "install", "--quiet", *packages],
    ]


def _run(command: Sequence[str], folder: Path, packages: str) -> None:
    try:
        subprocess.run(
            command, cwd=folder, check=True, capture_output=True, timeout=_INSTALL_LIMIT_S
        )
    except FileNotFoundError as error:
        raise Unavailable(f"{command[0]} is not installed") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"cannot install {packages} ({type(error).__name__})") from error


def _output_of(command: Sequence[str], folder: Path) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder, check=True, capture_output=True, text=True, timeout=_LIST_LIMIT_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"{command[0]} cannot list packages ({type(error).__name__})") from error
    return done.stdout
