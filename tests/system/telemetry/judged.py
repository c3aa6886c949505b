"""Evaluates our alert rules on given series with Prometheus's own `promtool`: which alerts fire.

    judge([Case("MoorageHostsDown", {'moorage_compute_hosts{state="down"}': "1x10"}, fires=True)])

Series are in promtool's notation, one value per minute: ``0 0 1x10`` is 0, 0, and eleven times 1. An alert is evaluated
at the end of its series. `from_scrapes` makes series from a process's metrics.
"""

import functools
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.servers import installed_program

RULES = Path(__file__).parents[3] / "packaging" / "prometheus" / "moorage-alerts.yaml"


@dataclass(frozen=True)
class Case:
    alert: str
    series: Mapping[str, str]
    fires: bool


@functools.cache
def rules() -> dict[str, dict]:
    """{alert: its rule}"""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def judge(cases: Iterable[Case], directory: Path) -> None:
    """Fails with promtool's output if an alert that should fire does not, or the other way round.

    Each rule is in a file of its own, because promtool evaluates all rules of a file for each minute of each test.
    """
    paths = []
    for number, case in enumerate(cases):
        rule = directory / f"{case.alert}.rule.yaml"
        rule.write_text(yaml.safe_dump({"groups": [{"name": "one", "rules": [rules()[case.alert]]}]}))
        paths.append(directory / f"{number}.yaml")
        document = {"rule_files": [str(rule)], "evaluation_interval": "1m", "tests": [_test(case)]}
        paths[-1].write_text(yaml.safe_dump(document))
    done = subprocess.run(
        [installed_program("promtool"), "test", "rules", *paths], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _test(case: Case) -> dict:
    firing = f'count(ALERTS{{alertname="{case.alert}",alertstate="firing"}}) > bool 0 or vector(0)'
    minutes = max(map(_length, case.series.values()), default=60) - 1
    return {
        "interval": "1m",
        "name": f"{case.alert} {'fires' if case.fires else 'is quiet'}",
        "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
        "promql_expr_test": [
            {"expr": firing, "eval_time": f"{minutes}m", "exp_samples": [{"labels": "{}", "value": int(case.fires)}]}
        ],
    }


def _length(values: str) -> int:
    return sum(1 + int(word.rpartition("x")[2]) if "x" in word else 1 for word in values.split())


def from_scrapes(scrapes: Sequence[str], alert: str, *, began: float = 0.0, minutes: int = 60) -> dict[str, str]:
    """The series that the rule of `alert` uses. Each scrape stands for `minutes`, one after the other.

    The growth of a counter since the previous scrape is repeated every five minutes. `began`: the time that promtool's
    clock calls 0; it is subtracted from timestamps in the metrics.
    """
    named = set(re.findall(r"moorage_\w+", rules()[alert]["expr"]))
    shown = [_values(text, named, began) for text in scrapes]
    series: dict[str, str] = {}
    for name in dict.fromkeys(name for values in shown for name in values):
        words, before = [], None
        for values in shown:
            now, is_counter = values.get(name, (None, False))
            if now is None:
                words.append(f"_x{minutes - 1}")
            elif is_counter and words:
                before = before or 0.0
                words.append(f"{before:.6f}+{(now - before) / 5:.6f}x{minutes - 1}")
            else:
                words.append(f"{now:.6f}+0x{minutes - 1}")
            before = now
        series[name] = " ".join(words)
    return series


def _values(text: str, named: set[str], began: float) -> dict[str, tuple[float, bool]]:
    """{series: (value, whether it is a counter)}"""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name not in named:
                continue
            labels = "".join(f',{key}="{value}"' for key, value in sorted(sample.labels.items()))
            value = sample.value - (began if "timestamp" in sample.name and sample.value else 0.0)
            found[f'{sample.name}{{instance="plane",job="moorage"{labels}}}'] = (value, family.type != "gauge")
    return found
