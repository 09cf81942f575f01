"""The dashboard and the rules that we ship name only metrics and labels that exist."""

import json
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tampu.metrics.history import Figures, Totals
from tampu.metrics.prometheus import FAMILIES, QueueMetrics, metrics_text
from tampu.wire.history import Gauges
from tampu.wire.outbox import OutboxFigures
from tests.guide.pages import DOCS, GUIDE, first_cells
from tests.metric_samples import samples

FOLDER = DOCS / "observability"
BOARD = json.loads((FOLDER / "grafana-dashboard.json").read_text("utf-8"))
RULES = yaml.safe_load((FOLDER / "prometheus-rules.yml").read_text("utf-8"))
KNOWN = QueueMetrics("q", Totals({"t": Figures()}), Gauges(), 0, {"o": OutboxFigures()})
TEXT = metrics_text([KNOWN])
LABELS: dict[str, set[str]] = {}
for name, labels in samples(TEXT):
    LABELS.setdefault(name, set()).update(label for label, _ in labels)
SELECTOR = re.compile(r"(tampu_\w+)(?:\{([^}]*)\})?")
GROUPING = re.compile(r"by \(([^)]*)\)")


def dashboard_expressions() -> Iterator[str]:
    for panel in BOARD["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    for variable in BOARD["templating"]["list"]:
        yield from [variable["definition"]] if variable["type"] == "query" else []


def rules() -> list[dict[str, Any]]:
    return [rule for group in RULES["groups"] for rule in group["rules"]]


EXPRESSIONS = [*dashboard_expressions(), *(rule["expr"] for rule in rules())]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_names_only_metrics_and_labels_that_exist(expression: str) -> None:
    used: set[str] = set()
    for name, selector in SELECTOR.findall(expression):
        assert name in LABELS, name
        used |= LABELS[name]
        for label in re.findall(r"(\w+)\s*(?:=~|!=|=)", selector):
            assert label in LABELS[name], f"{name} has no label {label}"
    for grouped in GROUPING.findall(expression):
        assert {label.strip() for label in grouped.split(",")} <= used


def test_every_metric_is_on_the_dashboard() -> None:
    shown = " ".join(dashboard_expressions())
    assert [each.name for each in FAMILIES if each.name not in shown] == []


def test_every_metric_is_documented_with_its_type() -> None:
    told = first_cells(GUIDE / "metrics.md", "Prometheus")
    assert [name for name, _ in told] == [each.name for each in FAMILIES]
    assert [kind for _, kind in told] == [each.kind for each in FAMILIES]


@pytest.mark.promtool
def test_the_metrics_are_as_prometheus_wants_them() -> None:
    checked = promtool("check", "metrics", given=TEXT)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


@pytest.mark.promtool
def test_the_rules_fire_when_they_should() -> None:
    for arguments in (
        ("check", "rules", "prometheus-rules.yml"),
        ("test", "rules", "prometheus-rules.test.yml"),
    ):
        checked = promtool(*arguments)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def promtool(*arguments: str, given: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["promtool", *arguments],
        cwd=FOLDER,
        input=given,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_dashboard_can_be_imported() -> None:
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(ids) == len(set(ids))
    assert (BOARD["uid"], BOARD["title"]) == ("tampu", "tampu")
    assert "id" not in BOARD, "Grafana gives one"
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, f"{panel['title']} covers another panel"
        assert max(x for x, _ in cells) < 24
        taken |= cells
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])


def test_every_rule_says_what_is_wrong_and_what_to_do() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names))
    for rule in rules():
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert set(rule["annotations"]) == {"summary", "description"}
        assert rule["annotations"]["description"].endswith(".")
