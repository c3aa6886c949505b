"""Filters of other packages: found by entry points, asked after ours; those that fail leave the host out and say so."""

import re
from pathlib import Path

import pytest
from rich.console import Console

from moorage.cli.explain_server import show
from moorage.compute.explain_client import ExplainClient
from moorage.compute.placing import Placer
from moorage.config import Config
from moorage.core.errors import StartError
from moorage.options import SchedulerOptions
from moorage.wiring.services import _scheduler
from tests.wire.compute.conftest import IMAGE, Host
from tests.wire.compute.test_scheduling import aggregate, host_of, message_of

PACKAGE = """
def quiet(host, wanted):
    return "no new servers" if "yes" in host.metadata.get("quiet", ()) and "loud" not in wanted.hints else None

def for_gold(host, wanted):
    return None if wanted.extra_specs.get("example:gold") or wanted.project_id == "red" else "for gold only"

def broken(host, wanted):
    return host.no_such_field

def of_nova(host, wanted):
    return True

number = 7
"""
ENTRIES = "".join(f"{name} = outside_filters:{name}\n" for name in ("quiet", "for_gold", "broken", "of_nova", "number"))


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Installed, as installers do it."""
    site = tmp_path / "site"
    about = site / "outside_filters-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "outside_filters.py").write_text(PACKAGE)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: outside-filters\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[moorage.scheduler.filters]\n{ENTRIES}absent = outside_filters:absent\n")
    monkeypatch.syspath_prepend(site)


def options(filters):
    return _scheduler(Config(scheduler=SchedulerOptions(filters=filters), source=Path("moorage.conf")))


@pytest.fixture
def with_filters(plane, host, package):
    """A function that switches filters on in `plane`, of two hosts, and gives these."""
    other = Host(plane, "compute-2")
    other.offer(VCPU=16, MEMORY_MB=32768, DISK_GB=500)
    plane.flavor("small")

    def switch_on(filters):
        chosen = options(filters)
        plane.builder = plane.new_builder(options=chosen)
        plane.service.explanations._placer = Placer(plane.engine, plane.placement, plane.service.hosts, chosen)
        return [host, other]

    return switch_on


def test_a_filter_of_another_package_keeps_servers_from_a_host(plane, with_filters):
    hosts = with_filters("quiet")
    aggregate(plane, "works", hosts[0], quiet="yes")
    aggregate(plane, "rack", hosts[0], quiet="no", rack="r7")
    ids = [plane.boot("small", f"vm-{number}") for number in range(4)]
    plane.settle(*hosts)
    assert {host_of(plane, one) for one in ids} == {"compute-2"}


def test_its_reason_is_in_the_fault_and_explained_by_its_name(plane, with_filters, capsys):
    hosts = with_filters("for_gold, quiet")
    aggregate(plane, "works", *hosts, quiet="yes")
    server = plane.boot("small")
    plane.settle(*hosts)
    words = "No valid host was found. Placement has room, but: 2 hosts: no new servers."
    assert message_of(plane, server) == words
    show(
        Console(width=100, highlight=False, color_system=None),
        ExplainClient(plane.agent._http).new_server({"flavorRef": "small"}, {"colour": "blue"}),
    )
    printed = capsys.readouterr().out
    assert "Placement has room, but: 2 hosts: for gold only." in printed  # that caller is of another project
    assert re.search(r"for gold +2 +0", printed)
    assert "compute-2: for gold only" in printed


def test_it_goes_by_hints_flavor_and_project(plane, with_filters):
    hosts = with_filters("for_gold,quiet")
    aggregate(plane, "works", *hosts, quiet="yes")
    plane.flavor("gold", {"example:gold": "1"})

    def status(flavor, hints, **who):
        body = {"name": "vm", "imageRef": IMAGE, "flavorRef": flavor, "networks": "none"}
        made = plane.send("POST", "/v2.1/servers", {"server": body, "os:scheduler_hints": hints}, **who)
        plane.settle(*hosts)
        return plane.show(made[2]["server"]["id"])["status"]

    assert status("small", {}) == "ERROR"
    assert status("small", {"loud": "1"}) == "ACTIVE"
    assert status("small", {"loud": "1"}, who="bob:blue") == "ERROR"
    assert status("gold", {"loud": "1"}, who="bob:blue") == "ACTIVE"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("broken", "the filter broken failed; the log of compute says how"),
        ("of_nova", "the filter of_nova answers neither a reason nor None"),
    ],
)
def test_one_that_fails_leaves_the_host_out_and_says_so(plane, with_filters, caplog, name, reason):
    hosts = with_filters(name)
    server = plane.boot("small")
    plane.settle(*hosts)
    assert message_of(plane, server).endswith(f"but: 2 hosts: {reason}.")
    assert any(record.filter == name for record in caplog.records if hasattr(record, "filter"))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("quite", "has quite; installed packages have absent, broken, for_gold, number, of_nova, quiet in the group"),
        ("absent", "has absent, which cannot be loaded: outside_filters:absent: "),
        ("number", "has number, which is no function: outside_filters:number"),
    ],
)
def test_one_that_is_none_ends_the_start(package, name, why):
    with pytest.raises(StartError, match=r"moorage\.conf: \[scheduler\] filters ") as error:
        options(f"quiet,{name}")
    assert why in str(error.value)
