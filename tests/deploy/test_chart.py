"""The Helm chart, rendered by helm itself: what comes out, and what it refuses."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.files import CHART, check_manifest, check_pod, documents, helm, settings_of

pytestmark = pytest.mark.helm

SERVER = {"server": {"existingSecret": "shop-queue"}}
SCALED = {
    "workers": {"pictures": {"queues": ["pictures=2", "more"], "keda": {"enabled": True}}},
    "serveTime": {"enabled": True},
    "keda": {"address": "valkey:6379", "prometheus": "http://prometheus:9090"},
}


def _write(values: list[dict[str, Any]], home: Path) -> list[str]:
    """Write values to files; the options that name them."""
    options = []
    for number, each in enumerate(values):
        file = home / f"values{number}.yaml"
        file.write_text(yaml.safe_dump(each))
        options += ["--values", str(file)]
    return options


def render(home: Path, *values: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """What the chart makes of values, by kind and name; each is checked."""
    done = helm("template", "shop", str(CHART), *_write([SERVER, *values], home), home=home)
    assert done.returncode == 0, done.stderr
    found = documents(done.stdout)
    for each in found:
        check_manifest(each)
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def refused(home: Path, *values: dict[str, Any]) -> str:
    done = helm("template", "shop", str(CHART), *_write(list(values), home), home=home)
    assert done.returncode != 0
    return done.stderr


def words_of(deployment: dict[str, Any]) -> list[str]:
    return check_pod(deployment["spec"]["template"]["spec"])


def test_helm_finds_nothing_wrong(tmp_path: Path) -> None:
    options = ["--strict", "--set", "server.existingSecret=q"]
    done = helm("lint", str(CHART), *options, home=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "0 chart(s) failed" in done.stdout


def test_alone_it_makes_two_workers_of_all_queues(tmp_path: Path) -> None:
    found = render(tmp_path)
    assert set(found) == {
        ("Deployment", "shop-tampu-main"),
        ("PodDisruptionBudget", "shop-tampu-main"),
    }
    deployment = found["Deployment", "shop-tampu-main"]
    assert deployment["spec"]["replicas"] == 2
    assert words_of(deployment)[:4] == ["worker", "shop:app", "--grace", "25s"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    budget = found["PodDisruptionBudget", "shop-tampu-main"]["spec"]
    for selector in (deployment["spec"]["selector"], budget["selector"]):
        assert selector["matchLabels"].items() <= labels.items()


def test_each_entry_of_workers_is_a_deployment_of_its_own(tmp_path: Path) -> None:
    own = {"queues": ["pictures=2"], "replicas": 0, "maxRss": "400MB", "args": ["--quiet"]}
    own |= {"maxUnavailable": 0, "resources": {"requests": {"cpu": "2"}}}
    found = render(tmp_path, {"workers": {"pictures": own}, "graceSeconds": 600})
    deployment = found["Deployment", "shop-tampu-pictures"]
    assert deployment["spec"]["replicas"] == 0
    words = words_of(deployment)
    assert words[words.index("--queue") :] == [
        *("--queue", "pictures=2", "--max-rss", "400MB", "--quiet")
    ]
    pod = deployment["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 635
    resources = pod["containers"][0]["resources"]
    assert resources == {"requests": {"cpu": "2", "memory": "256Mi"}, "limits": {"memory": "512Mi"}}
    assert ("PodDisruptionBudget", "shop-tampu-pictures") not in found
    assert ("Deployment", "shop-tampu-main") in found


@pytest.mark.parametrize(
    ("by", "kind", "what"),
    [
        ("stream", "redis-streams", {"stream": "{chasqui:pictures}:stream", "streamLength": "50"}),
        (
            "jobs",
            "prometheus",
            {
                "query": "sum(max by (state) "
                '(tampu_queue_jobs{queue="pictures",state=~"waiting|active"}))'
            },
        ),
        ("age", "prometheus", {"query": 'max(tampu_queue_oldest_seconds{queue="pictures"})'}),
    ],
)
def test_keda_scales_by_each_queue(
    tmp_path: Path, by: str, kind: str, what: dict[str, str]
) -> None:
    chosen = {"workerDefaults": {"keda": {"by": by, "minReplicas": 1 if by == "age" else 0}}}
    found = render(tmp_path, SCALED, chosen)
    assert "replicas" not in found["Deployment", "shop-tampu-pictures"]["spec"]
    spec = found["ScaledObject", "shop-tampu-pictures"]["spec"]
    first, second = spec["triggers"]
    assert (first["type"], second["type"]) == (kind, kind)
    assert what.items() <= first["metadata"].items()
    assert "more" in json.dumps(second)
    assert words_of(found["Deployment", "shop-tampu-time"])[:2] == ["serve-time", "shop:app"]


def test_the_dashboard_has_a_service_and_asks_for_a_token(tmp_path: Path) -> None:
    own = {"enabled": True, "existingSecret": "d", "readOnly": True, "allowedHosts": ["jobs.local"]}
    found = render(tmp_path, {"dashboard": own})
    deployment = found["Deployment", "shop-tampu-dashboard"]
    assert {"--read-only", "jobs.local"} <= set(words_of(deployment))
    names = [
        each["name"] for each in deployment["spec"]["template"]["spec"]["containers"][0]["env"]
    ]
    assert names == ["TAMPU_URL", "TAMPU_DASHBOARD_TOKEN"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    selector = found["Service", "shop-tampu-dashboard"]["spec"]["selector"]
    assert selector.items() <= labels.items()


def test_a_url_makes_a_secret_and_stands_nowhere_else(tmp_path: Path) -> None:
    url = "redis://:sesame@valkey:6379/0"
    found = render(tmp_path, {"server": {"existingSecret": "", "url": url}})
    secret = found.pop(("Secret", "shop-tampu-server"))
    assert secret["stringData"] == {"url": url}
    assert "sesame" not in json.dumps(list(found.values()))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ([], "set server.existingSecret"),
        ([SERVER, {"workers": {"main": {"replica": 3}}}], "replica is not allowed"),
        ([SERVER, {"workers": {"time": {}}}], "workers"),
        ([SERVER, {"dashboard": {"enabled": True}}], "set dashboard.existingSecret"),
        ([SERVER, SCALED, {"serveTime": {"enabled": False}}], "set serveTime.enabled"),
        ([SERVER, SCALED, {"keda": {"address": ""}}], "set keda.address"),
        ([SERVER, SCALED, {"workers": {"pictures": {"queues": []}}}], "names of its queues"),
        ([SERVER, SCALED, {"workerDefaults": {"keda": {"by": "age"}}}], "must be at least 1"),
        ([SERVER, {"graceSeconds": "25s"}], "graceSeconds"),
    ],
)
def test_what_cannot_work_is_refused_with_a_sentence(
    tmp_path: Path, values: list[dict[str, Any]], sentence: str
) -> None:
    assert sentence in refused(tmp_path, *values)


def test_every_value_is_used_and_in_the_schema() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(values) | {"global"} == set(schema["properties"])
    text = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    used = set(re.findall(r"\.(\w+)", text))
    # What is written out as it stands, such as a security context, has no name of its own there.
    written = {"resources", "podSecurityContext", "securityContext"}
    for setting in settings_of(values):
        path = setting.split(".")
        assert written & set(path) or set(path) - {"main"} <= used, setting
