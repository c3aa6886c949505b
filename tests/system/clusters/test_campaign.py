"""The campaign of `make clusters` in its shortest form, and the parts that need no cloud."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.debian import unpacked
from tests.networks import has_own_networks
from tests.servers import ServerMissing
from tests.system.clusters.campaign import FAULTS, IMPOSSIBLE, KINDS, PAIRS, attacks, selected
from tests.system.clusters.load import Holding, Writer, most_at_once

ROOT = Path(__file__).parents[3]
#: The start of the cloud, two attacks, and the checks; the machine may be busy.
PATIENCE_S = 400


@pytest.mark.slow
@pytest.mark.postgresql
@pytest.mark.rabbit
def test_a_killed_service_and_a_killed_leader_of_etcd_lose_nothing_on_a_whole_cloud():
    if not has_own_networks():
        pytest.skip("this user cannot make network namespaces; run it as root")
    try:
        unpacked("etcd", "etcd-server")
    except ServerMissing as missing:
        pytest.skip(f"no etcd: {missing}")
    done = subprocess.run(
        [sys.executable, "-m", "tests.system.clusters.campaign", "--only", "service-kill", "etcd-kill", "--lasts", "3"],
        capture_output=True, text=True, check=False, timeout=PATIENCE_S, cwd=ROOT, env=os.environ,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}{done.stderr[-10000:]}"
    table = done.stdout.partition("|---")[2].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table if line.endswith("|")][1:]
    assert [(row[0], row[-1]) for row in rows] == [("etcd-kill", "nothing"), ("service-kill", "nothing")]
    assert all(int(row[3]) > 0 for row in rows)


@pytest.mark.core
def test_each_kind_has_each_fault_and_then_two_at_a_time():
    alone = {one[0] for one in attacks() if len(one) == 1}
    every = {f"{kind}-{fault}" for kind in KINDS for fault in FAULTS}
    assert alone == every - {"-".join(one) for one in IMPOSSIBLE}
    assert [one for one in attacks() if len(one) > 1] == list(PAIRS)


@pytest.mark.core
def test_only_selects_kinds_faults_and_attacks():
    assert selected([]) == list(attacks())
    assert selected(["broker-cut"]) == [("broker-cut",)]
    assert [name for (name,) in selected(["proxy"])] == ["proxy-kill", "proxy-pause", "proxy-cut", "proxy-clock"]
    assert ("service-kill", "primary-kill") in selected(["kill"])
    assert ("service-kill", "primary-kill") not in selected(["service"])


@pytest.mark.core
def test_the_time_without_writes_is_the_longest_between_two_acknowledgements_after_the_attack():
    writer = Writer(acknowledged={"a": 1.0, "b": 9.0, "c": 12.0, "d": 13.0})
    assert writer.pause_s(since=8.5) == 3.0
    assert writer.pause_s(since=2.0) == 7.0


@pytest.mark.core
def test_holdings_that_touch_do_not_overlap():
    assert most_at_once([]) == 0
    assert most_at_once([Holding(0, 2), Holding(2, 3), Holding(1, 2)]) == 2
