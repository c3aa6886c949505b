"""All metrics of a process with every service and an agent (name, kind, labels), and the names in PromQL."""

import re
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.metrics import MetricWrapperBase

from moorage.config import Config
from tests.plane import InProcessPlane

#: Labels that Prometheus adds to each series.
ADDED = frozenset({"instance", "job"})


@dataclass(frozen=True)
class Metric:
    kind: str
    labels: frozenset[str]


def metrics(directory: Path) -> dict[str, Metric]:
    """{name as people write it: the metric}, including a process's own (`process_*`, `python_*`)."""
    found = {}
    options = Config()
    audit = {"period_s": options.audit.period_s}  # without an audit the process has no metrics of audits
    services = options.plane.services
    with InProcessPlane(directory, services, authenticator=None, credentials=None, audit=audit) as plane:
        for collector in plane.plane.metrics.registry._collector_to_names:
            for one in [collector] if isinstance(collector, MetricWrapperBase) else collector.collect():
                name, kind = (one._name, one._type) if isinstance(one, MetricWrapperBase) else (one.name, one.type)
                found[f"{name}_total" if kind == "counter" else name] = Metric(kind, frozenset(one._labelnames))
    return found


def series(known: dict[str, Metric]) -> dict[str, frozenset[str]]:
    """{name of a series: its labels}; a histogram has three series."""
    found = {"up": ADDED}
    for name, metric in known.items():
        labels = metric.labels | ADDED
        if metric.kind == "histogram":
            found |= {f"{name}_bucket": labels | {"le"}, f"{name}_count": labels, f"{name}_sum": labels}
        else:
            found[name] = labels
    return found


def unknown(expression: str, known: dict[str, frozenset[str]]) -> list[str]:
    """Names in an expression that do not exist: series, labels of a selector, labels in a group."""
    text = re.sub(r'"(?:[^"\\]|\\.)*"', '""', expression)
    wrong = []
    there = set(ADDED)
    for name, matchers in re.findall(r"\b((?:moorage|process|python)_\w+|up)\b\s*(?:\{([^}]*)\})?", text):
        if name not in known:
            wrong.append(name)
            continue
        there |= known[name]
        wrong += [f"{name}{{{label}}}" for label in re.findall(r"(\w+)\s*[=!]", matchers) if label not in known[name]]
    for grouped in re.findall(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)", text):
        wrong += [f"by ({label})" for label in re.findall(r"\w+", grouped) if label not in there]
    return wrong
