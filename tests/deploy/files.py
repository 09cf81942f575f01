"""The files in `deploy/`: where they are, what is in them, how they are checked."""

import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import yaml

from tampu.cli.main import load_command
from tampu.util.clock import to_s
from tests.selection import HELM, path_of
from tests.servers import ROOT

DEPLOY: Final = ROOT / "deploy"
CHART: Final = DEPLOY / "helm" / "tampu"
MARGIN_S: Final = 35
"""What a stop may take beyond the grace, as the guide says."""
_KEDA: Final = "keda.sh/"
_TRIGGERS: Final[dict[str, set[str]]] = {
    # What the scalers of KEDA take, of which these files need no more.
    "redis-streams": {"address", "stream", "streamLength", "databaseIndex"},
    "prometheus": {"serverAddress", "query", "threshold"},
}


def documents(text: str) -> list[dict[str, Any]]:
    """The documents in a text of YAML."""
    return [each for each in yaml.safe_load_all(text) if each is not None]


def check_manifest(manifest: dict[str, Any]) -> None:
    """Fail if Kubernetes or KEDA would not know something in a manifest."""
    if manifest["apiVersion"].startswith(_KEDA):
        check_scaling(manifest)
    else:
        newest = kubernetes_validate.latest_version()
        kubernetes_validate.validate(manifest, newest, strict=True)


def check_scaling(manifest: dict[str, Any]) -> None:
    """Fail if a trigger has another form than its scaler takes."""
    if manifest["kind"] == "TriggerAuthentication":
        assert {"parameter", "name", "key"} == set(manifest["spec"]["secretTargetRef"][0])
        return
    assert manifest["kind"] == "ScaledObject"
    spec = manifest["spec"]
    assert 0 <= spec["minReplicaCount"] <= spec["maxReplicaCount"]
    for trigger in spec["triggers"]:
        metadata = trigger["metadata"]
        assert set(metadata) == _TRIGGERS[trigger["type"]]
        assert all(isinstance(value, str) for value in metadata.values()), "KEDA takes texts"


def check_words(words: list[str]) -> None:
    """Fail if `tampu` would not take these words."""
    name, *args = words
    load_command(name).make_context("tampu", list(args))


def option_of(words: list[str], option: str) -> str:
    """The value that an option has among the words of a command."""
    (value,) = [value for name, value in pairwise(words) if name == option]
    return value


def grace_s(words: list[str]) -> float:
    """The grace that the words of a command give."""
    return to_s("grace", option_of(words, "--grace"))


def check_pod(pod: dict[str, Any]) -> list[str]:
    """Fail if a pod would be stopped too early or has rights it needs not; its words."""
    (container,) = pod["containers"]
    words: list[str] = container["args"]
    check_words(words)
    if words[0] == "worker":
        assert pod["terminationGracePeriodSeconds"] >= grace_s(words) + MARGIN_S
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert pod["automountServiceAccountToken"] is False
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    probes = [container[each] for each in ("readinessProbe", "livenessProbe") if each in container]
    for probe in probes:
        if "httpGet" in probe:
            assert probe["httpGet"]["path"] in {"/live", "/ready"}
            assert str(ports[probe["httpGet"]["port"]]) == option_of(words, "--health-port")
            assert option_of(words, "--health-host") == "0.0.0.0"  # noqa: S104 - of a pod
    assert probes
    return words


def helm(*args: str, home: Path) -> "subprocess.CompletedProcess[str]":
    """Run helm; it keeps what it writes in `home`."""
    program = path_of(HELM)
    assert program is not None, "tests with the mark are left out without it"
    own = {f"HELM_{name}_HOME": str(home) for name in ("CACHE", "CONFIG", "DATA")}
    return subprocess.run(
        [program, *args], env=own, capture_output=True, text=True, timeout=60, check=False
    )


def settings_of(values: dict[str, Any], above: str = "") -> Iterator[str]:
    """The names of all settings in the values of a chart, such as `image.tag`."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from settings_of(value, f"{above}{name}.")
        else:
            yield f"{above}{name}"
