"""What the image and the compose file run works here: commands, program, health check."""

import re
import shutil
import subprocess
from pathlib import Path

import yaml

from tests.contract.cli import tampu
from tests.contract.worker_command import run_command
from tests.deploy.files import DEPLOY
from tests.servers import RunningServer

IMAGE = DEPLOY / "docker"
HEALTH = "/tmp/tampu.health"  # noqa: S108 - in a container


def health_check(file: Path) -> int:
    """The exit code of the health check of the image."""
    text = (IMAGE / "Dockerfile").read_text()
    (command,) = re.findall(r"^HEALTHCHECK .*\\\n\s+CMD (.+)$", text, re.MULTILINE)
    return subprocess.run(["sh", "-c", command.replace(HEALTH, str(file))], check=False).returncode


async def test_worker_and_time_of_the_compose_file_work_and_are_healthy(
    running: RunningServer, tmp_path: Path
) -> None:
    services = yaml.safe_load((IMAGE / "compose.yaml").read_text())["services"]
    shutil.copy(IMAGE / "shop.py", tmp_path)
    alive = {name: tmp_path / f"{name}.health" for name in ("worker", "time")}
    words = {
        name: [word.replace(HEALTH, str(file)) for word in services[name]["command"]]
        for name, file in alive.items()
    }
    assert health_check(alive["worker"]) != 0
    with (
        run_command(running.url, tmp_path, *words["time"]) as time,
        run_command(running.url, tmp_path, *words["worker"]) as worker,
    ):
        done = await tampu(
            *("enqueue", "--queue", "default", "add", "--data", '{"a": 2}', "--delay", "10ms"),
            *("--wait", "--timeout", "60s"),
            url=running.url,
        )
        assert done.lines[-1] == "3", done
        for command, file in ((time, alive["time"]), (worker, alive["worker"])):
            command.until(file.exists, "it touches its file")
            assert health_check(file) == 0
        assert (worker.stop(), time.stop()) == (0, 0)
    assert health_check(alive["worker"]) != 0
