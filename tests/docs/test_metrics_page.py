"""The page for operators names every metric that a process shows, with its labels, and none besides."""

import re
from pathlib import Path

import pytest

from moorage.core.clock import SystemClock
from moorage.core.ids import SeededIds
from moorage.db.migrations import upgrade
from moorage.placement.service import PlacementService
from moorage.telemetry.metrics import Metrics

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "metrics.md").read_text()
ROW = re.compile(r"^\| `(moorage_\w+)` \| (\w+) \|([\w, ]*)\| .+ \|$", re.MULTILINE)


@pytest.fixture
def families(sqlite_engine):
    """{name: family} of a process that has done a little of everything."""
    upgrade(sqlite_engine, "placement")
    metrics = Metrics()
    metrics.watch_engine("placement", sqlite_engine)
    service = PlacementService(sqlite_engine, SystemClock(), SeededIds(1), registry=metrics.registry)
    service.start()
    service.providers.create("host", None, None)
    meter = metrics.requests_of("placement")
    meter.end(meter.begin(), "GET", "/", 200)
    metrics.ticked("duty", 1.0)
    metrics.ticked("duty", None)
    with pytest.raises(Exception, match="no such table"), sqlite_engine.connect() as connection:
        connection.exec_driver_sql("SELECT * FROM nowhere")
    return {family.name: family for family in metrics.registry.collect() if family.name.startswith("moorage_")}


def shown(family):
    """(name, kind, labels) as the page has them."""
    name = f"{family.name}_total" if family.type == "counter" else family.name
    labels = {label for sample in family.samples for label in sample.labels} - {"le"}
    return name, family.type, labels


def test_every_metric_is_on_the_page_with_its_kind_and_labels(families):
    documented = {
        name: (kind, set(filter(None, labels.replace(" ", "").split(",")))) for name, kind, labels in ROW.findall(PAGE)
    }
    assert documented == {name: (kind, labels) for name, kind, labels in map(shown, families.values())}


def test_alerts_name_metrics_that_there_are(families):
    names = {shown(family)[0] for family in families.values()}
    known = names | {f"{name}_{part}" for name in names for part in ("bucket", "count", "sum")}
    known |= {"moorage_placement"}
    used = set(re.findall(r"moorage_(?:http|placement|database|duty)_\w+", PAGE))
    assert used - known == set()
