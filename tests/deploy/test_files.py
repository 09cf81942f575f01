"""The files in `deploy/` can be read by what they are for, and say what the guide says."""

import ast
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from configparser import RawConfigParser
from pathlib import Path

import pytest
import yaml

from tests.deploy.files import (
    DEPLOY,
    MARGIN_S,
    check_manifest,
    check_pod,
    check_words,
    documents,
    grace_s,
    option_of,
)
from tests.guide.pages import GUIDE, block_of
from tests.servers import ROOT

MANIFESTS = sorted([*(DEPLOY / "kubernetes").glob("*"), *(DEPLOY / "keda").glob("*")])
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
IMAGE = DEPLOY / "docker"


def name_of(path: Path) -> str:
    return path.name


def without_head(path: Path) -> str:
    """The text of a file without the comment at its beginning."""
    return re.sub(r"\A(#.*\n)+", "", path.read_text("utf-8"))


def instruction(name: str) -> str:
    """What stands last behind an instruction of the Dockerfile."""
    found = re.findall(rf"^{name} (.+)$", (IMAGE / "Dockerfile").read_text(), re.MULTILINE)
    return str(found[-1])


def words_of(name: str) -> list[str]:
    words: list[str] = json.loads(instruction(name))
    return words


def check_schema(name: str, path: Path) -> None:
    """Fail if a file does not fit a schema that check-jsonschema carries."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", name, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("heading", "language", "file"),
    [
        ("systemd", "ini", "systemd/tampu-worker@.service"),
        ("Containers", "dockerfile", "docker/Dockerfile"),
        ("Kubernetes", "yaml", "kubernetes/worker.yaml"),
    ],
)
def test_the_guide_shows_the_file(heading: str, language: str, file: str) -> None:
    assert block_of(GUIDE / "deploying.md", heading, language) == without_head(DEPLOY / file)


def test_the_guide_shows_the_triggers() -> None:
    page = (GUIDE / "scaling.md").read_text("utf-8")
    shown = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    files = ["by-stream-length.yaml", "by-jobs.yaml"]
    kept = [documents((DEPLOY / "keda" / name).read_text())[-1]["spec"] for name in files]
    assert [each["triggers"] for each in shown] == [each["triggers"] for each in kept]


# --- systemd ------------------------------------------------------------------------------------


def unit_of(path: Path) -> RawConfigParser:
    unit = RawConfigParser()
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(path.read_text("utf-8"))
    return unit


@pytest.mark.parametrize("path", UNITS, ids=name_of)
def test_a_unit_runs_a_command_and_waits_for_it(path: Path) -> None:
    service = unit_of(path)["Service"]
    options = re.findall(
        r"^(\w+)=(.*)$", (DEPLOY / "systemd" / "tampu.env").read_text(), re.MULTILINE
    )
    given = dict(options) if "@" in path.name else {**dict(options), "TAMPU_OPTIONS": ""}
    line = service["ExecStart"].replace("${TAMPU_APP}", given["TAMPU_APP"])
    _, *words = shlex.split(line.replace("$TAMPU_OPTIONS", given["TAMPU_OPTIONS"]))
    check_words(words)
    if words[0] == "worker":
        assert int(service["TimeoutStopSec"]) >= grace_s(words) + MARGIN_S
        assert (service["KillSignal"], service["KillMode"]) == ("SIGTERM", "mixed")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
@pytest.mark.parametrize("path", UNITS, ids=name_of)
def test_systemd_knows_all_that_is_in_a_unit(path: Path, tmp_path: Path) -> None:
    # The program is another one, because systemd looks whether it is there.
    text = path.read_text("utf-8").replace("/srv/shop/.venv/bin/tampu", "/bin/true")
    unit = tmp_path / path.name.replace("@", "@emails")
    unit.write_text(text)
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    told = [line for line in done.stderr.splitlines() if path.name.split("@")[0] in line]
    assert told == []


# --- the image and the compose file -------------------------------------------------------------


def test_the_image_has_what_its_commands_need() -> None:
    text = (IMAGE / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (?!--from)(\S+) ", text, re.MULTILINE)
    assert all((IMAGE / name).exists() for name in copied)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = re.findall(r"tampu\[(.+)\]", (IMAGE / "requirements.txt").read_text())[0].split(",")
    assert set(wanted) <= set(extras["optional-dependencies"])
    ast.parse((IMAGE / "shop.py").read_text())
    assert words_of("ENTRYPOINT") == ["tampu"]
    assert text.index("\nUSER 10001\n") < text.index("\nENTRYPOINT")
    assert "curl" not in text
    assert "wget" not in text


def test_the_image_checks_the_file_that_its_command_touches() -> None:
    words = words_of("CMD")
    check_words(words)
    file = option_of(words, "--health-file")
    assert f"find {file} " in (IMAGE / "Dockerfile").read_text()
    (stop_s,) = re.findall(r"`docker stop -t (\d+)`", (GUIDE / "deploying.md").read_text("utf-8"))
    assert int(stop_s) >= grace_s(words) + MARGIN_S


def test_the_compose_file_has_the_form_of_compose_files() -> None:
    check_schema("vendor.compose-spec", IMAGE / "compose.yaml")


def test_the_services_of_the_compose_file_fit_together() -> None:
    services = yaml.safe_load((IMAGE / "compose.yaml").read_text())["services"]
    queue = services.pop("queue")
    for setting in ("--appendonly yes", "--maxmemory-policy noeviction"):
        assert setting in queue["command"]
    assert "ports" not in queue
    assert "healthcheck" in queue
    for service in services.values():
        check_words(service["command"])
        assert service["environment"]["TAMPU_URL"] == "redis://queue:6379/0"
        assert service["depends_on"] == {"queue": {"condition": "service_healthy"}}
        assert service["read_only"] is True
    worker = services["worker"]
    stop_s = int(worker["stop_grace_period"].removesuffix("s"))
    assert stop_s >= grace_s(worker["command"]) + MARGIN_S
    for name in ("worker", "time"):  # the health check of the image looks there
        file = option_of(services[name]["command"], "--health-file")
        assert file == option_of(words_of("CMD"), "--health-file")
    assert all(port.startswith("127.0.0.1:") for port in services["dashboard"]["ports"])


def test_the_workflow_has_the_form_of_workflows() -> None:
    path = DEPLOY / "github-actions" / "tests.yaml"
    check_schema("vendor.github-workflows", path)
    job = yaml.safe_load(path.read_text())["jobs"]["tests"]
    assert job["services"]["queue"]["ports"] == ["6379:6379"]
    assert ":6379/" in job["env"]["TAMPU_URL"]
    for step in job["steps"]:
        run = step.get("run", "")
        if run.startswith("tampu "):
            check_words(shlex.split(run)[1:])


# --- Kubernetes and KEDA ------------------------------------------------------------------------


@pytest.mark.parametrize("path", MANIFESTS, ids=name_of)
def test_a_manifest_is_one_that_kubernetes_knows(path: Path) -> None:
    for manifest in documents(path.read_text()):
        check_manifest(manifest)
        if manifest["kind"] == "Deployment":
            check_pod(manifest["spec"]["template"]["spec"])


def test_what_keda_scales_is_there() -> None:
    worker = yaml.safe_load((DEPLOY / "kubernetes" / "worker.yaml").read_text())
    for path in (DEPLOY / "keda").glob("*"):
        scaled = documents(path.read_text())[-1]
        assert scaled["spec"]["scaleTargetRef"]["name"] == worker["metadata"]["name"]


def test_every_file_is_in_the_list() -> None:
    text = (DEPLOY / "README.md").read_text("utf-8")
    folders = {each.name for each in DEPLOY.iterdir() if each.is_dir()}
    assert {link.split("/")[0] for link in re.findall(r"\]\(([\w-]+/?[^)]*)\)", text)} >= folders
