"""The page for operators names exactly the metrics of a process, with their labels. Alerts and panels use only metrics
that exist.
"""

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.docs.shown import ADDED, metrics, series, unknown

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "metrics.md").read_text()
ROW = re.compile(r"^\| `(moorage_\w+)` \| (\w+) \|([\w, ]*)\| .+ \|$", re.MULTILINE)
ALERTS = [
    rule
    for group in yaml.safe_load((ROOT / "packaging" / "prometheus" / "moorage-alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]
DASHBOARD = json.loads((ROOT / "packaging" / "grafana" / "moorage.json").read_text())
PARTS = ("Find the cause", "Remedy", "Test")


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    return metrics(tmp_path_factory.mktemp("plane"))


def test_every_metric_is_on_the_page_with_its_kind_and_labels(known):
    documented = {
        name: (kind, frozenset(filter(None, labels.replace(" ", "").split(","))))
        for name, kind, labels in ROW.findall(PAGE)
    }
    ours = {name: (one.kind, one.labels) for name, one in known.items() if name.startswith("moorage_")}
    assert documented == ours


def test_the_page_names_only_metrics_that_exist(known):
    there = series(known).keys() | known.keys()
    assert set(re.findall(r"moorage_(?:http|placement|compute|database|task)_\w+", PAGE)) - there == set()


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_uses_existing_metrics_and_names_its_runbook(known, rule):
    assert unknown(rule["expr"], series(known)) == []
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert rule["annotations"]["runbook_url"] == f"docs/runbooks/{rule['alert']}.md"
    book = (ROOT / rule["annotations"]["runbook_url"]).read_text()
    assert book.startswith(f"# {rule['alert']}\n")
    assert re.findall(r"^## (.+)$", book, re.MULTILINE) == list(PARTS)
    test, path = re.search(r"`(test_\w+)`\s+in\s+`([\w/.]+)`", book.partition("## Test")[2]).groups()
    source = (ROOT / path).read_text()
    assert f"def {test}(" in source
    assert f'"{rule["alert"]}"' in source
    assert (
        unknown(" ".join(re.findall(r"`([^`]*moorage_[^`]*)`", book)), series(known) | _whole_histograms(known)) == []
    )


def _whole_histograms(known):
    """Adds the names of histograms without suffixes, which a page for people may use."""
    return {name: one.labels | ADDED | {"le"} for name, one in known.items()}


def test_every_runbook_has_its_alert():
    books = {path.stem for path in (ROOT / "docs" / "runbooks").glob("*.md")} - {"README"}
    assert books == {rule["alert"] for rule in ALERTS}


def panels():
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_a_panel_uses_existing_metrics(known, panel):
    for target in panel["targets"]:
        assert unknown(target["expr"], series(known)) == []
        shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        grouped = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", target["expr"]))))
        assert shown <= grouped | ADDED | {label for one in known.values() for label in one.labels}


def test_grafana_can_import_the_dashboard():
    """Has what Grafana 10 and later need: a schema version, and panels with unique ids and positions."""
    assert DASHBOARD["schemaVersion"] >= 38
    assert "id" not in DASHBOARD, "a number of its own belongs to one Grafana"
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    variables = {one["name"] for one in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)\}?", json.dumps(DASHBOARD["panels"])))
    assert used <= variables
    places = [tuple(panel["gridPos"][key] for key in "xywh") for panel in DASHBOARD["panels"]]
    assert not [
        (one, other)
        for number, one in enumerate(places)
        for other in places[number + 1 :]
        if one[0] < other[0] + other[2]
        and other[0] < one[0] + one[2]
        and one[1] < other[1] + other[3]
        and other[1] < one[1] + one[3]
    ]
