"""Filters and weighers of other packages: found by entry points, and used in addition to ours; failures are logged."""

import re
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from rich.console import Console

from moorage.cli.commands.explain_server import print_explanation
from moorage.compute.client.compute_client import ExplainClient
from moorage.config import Config
from moorage.core.errors import StartError
from moorage.options.compute import SchedulerOptions
from moorage.wiring.scheduler import scheduler_options
from tests.wire.compute.conftest import IMAGE, Host
from tests.wire.compute.test_build_job import aggregate, host_of, message_of

SAMPLE = "x-moorage-sample"

PACKAGE = """
def quiet(host, wanted):
    return "no new servers" if "yes" in host.metadata.get("quiet", ()) and "loud" not in wanted.hints else None

def for_gold(host, wanted):
    return None if wanted.extra_specs.get("example:gold") or wanted.project_id == "red" else "for gold only"

def broken(host, wanted):
    return host.no_such_field

def of_nova(host, wanted):
    return True

def fewest(facts, weigher_input):
    return -facts.free["DISK_GB"] if "CUSTOM_QUIET" not in facts.traits else -1e9

def no_number(facts, weigher_input):
    return "much"

def fails(facts, weigher_input):
    return facts.no_such_field

number = 7
"""
ENTRIES = "".join(f"{name} = outside_filters:{name}\n" for name in ("quiet", "for_gold", "broken", "of_nova", "number"))
WEIGHERS = "".join(f"{name} = outside_filters:{name}\n" for name in ("fewest", "no_number", "fails", "number"))


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with entry points, as an installer would install it."""
    site = tmp_path / "site"
    about = site / "outside_filters-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "outside_filters.py").write_text(PACKAGE)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: outside-filters\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        f"[moorage.scheduler.filters]\n{ENTRIES}absent = outside_filters:absent\n"
        f"[moorage.scheduler.weighers]\n{WEIGHERS}ram = outside_filters:fewest\nabsent = outside_filters:absent\n"
    )
    monkeypatch.syspath_prepend(site)


def options(**chosen):
    return scheduler_options(Config(scheduler=SchedulerOptions(**chosen), source=Path("moorage.conf")))


@pytest.fixture
def with_filters(plane, host, package):
    """Creates two hosts, and a function that enables filters or sets other options in `plane` and returns the hosts."""
    other = Host(plane, "compute-2")
    other.offer(VCPU=16, MEMORY_MB=32768, DISK_GB=500)
    plane.flavor("small")

    def switch_on(filters="", **more):
        nothing = {"weighers": "", "weight_multipliers": ""}
        plane.restart(scheduler=nothing | {"filters": filters, **more})
        return [host, other]

    return switch_on


def test_a_filter_of_another_package_rejects_hosts(plane, with_filters):
    hosts = with_filters("quiet")
    aggregate(plane, "works", hosts[0], quiet="yes")
    aggregate(plane, "rack", hosts[0], quiet="no", rack="r7")
    ids = [plane.boot("small", f"vm-{number}") for number in range(4)]
    plane.settle(*hosts)
    assert {host_of(plane, one) for one in ids} == {"compute-2"}


def test_the_reason_of_a_foreign_filter_is_in_the_fault_and_in_explanations(plane, with_filters, capsys):
    hosts = with_filters("for_gold, quiet")
    aggregate(plane, "works", *hosts, quiet="yes")
    server = plane.boot("small")
    plane.settle(*hosts)
    words = "No valid host was found. Placement has capacity, but: 2 hosts: no new servers."
    assert message_of(plane, server) == words
    print_explanation(
        Console(width=100, highlight=False, color_system=None),
        ExplainClient(plane.agent._http).explain_new_server({"flavorRef": "small"}, {"colour": "blue"}),
    )
    printed = capsys.readouterr().out
    # The caller belongs to another project.
    assert "Placement has capacity, but: 2 hosts: for gold only." in printed
    assert re.search(r"for gold +2 +0", printed)
    assert "compute-2: for gold only" in printed


def test_a_foreign_filter_gets_the_hints_the_flavor_and_the_project(plane, with_filters):
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
def test_a_foreign_filter_that_raises_rejects_the_host_and_is_logged(plane, with_filters, caplog, name, reason):
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
        ("number", "has number, which is not a function: outside_filters:number"),
    ],
)
def test_a_start_fails_if_a_named_filter_is_invalid(package, name, why):
    with pytest.raises(StartError, match=r"moorage\.conf: \[scheduler\] filters ") as error:
        options(filters=f"quiet,{name}")
    assert why in str(error.value)


def placed(plane, hosts, count=3):
    ids = [plane.boot("small", f"vm-{number}") for number in range(count)]
    plane.settle(*hosts)
    return {host_of(plane, one) for one in ids}


def test_a_weigher_of_another_package_orders_the_hosts(plane, with_filters):
    """It gets the free amounts and the traits of the tree; its factor is an option, or in an aggregate's metadata."""
    hosts = with_filters(weighers="fewest", weight_multipliers="fewest=100")
    hosts[1].offer(VCPU=16, MEMORY_MB=32768, DISK_GB=400)
    assert placed(plane, hosts) == {"compute-2"}
    with_filters(weighers="fewest", weight_multipliers="fewest=-100")
    assert placed(plane, hosts) == {"compute-1"}
    aggregate(plane, "turned", *hosts, fewest_weight_multiplier="100")
    assert placed(plane, hosts) == {"compute-2"}
    plane.placement.ensure_trait("CUSTOM_QUIET")
    provider = plane.placement.provider_by_name("compute-2")
    plane.placement.set_traits(provider.uuid, provider.generation, ["CUSTOM_QUIET"])
    assert placed(plane, hosts) == {"compute-1"}


@pytest.mark.parametrize(
    ("name", "said"), [("fails", "a weigher failed"), ("no_number", "a weigher did not return a number")]
)
def test_a_foreign_weigher_that_raises_is_ignored_and_logged(plane, with_filters, caplog, name, said):
    hosts = with_filters(weighers=f"{name},fewest", weight_multipliers=f"{name}=1000,fewest=100")
    hosts[1].offer(VCPU=16, MEMORY_MB=32768, DISK_GB=400)
    assert placed(plane, hosts) == {"compute-2"}
    assert {record.getMessage() for record in caplog.records if getattr(record, "weigher", "") == name} == {said}


@pytest.mark.parametrize(
    ("chosen", "why"),
    [
        (
            {"weighers": "fewst"},
            "weighers has fewst; installed packages have absent, fails, fewest, no_number, number, ram",
        ),
        ({"weighers": "absent"}, "weighers has absent, which cannot be loaded: outside_filters:absent: "),
        ({"weighers": "number"}, "weighers has number, which is not a function: outside_filters:number"),
        ({"weighers": "ram"}, "weighers has ram, the name of a built-in weigher"),
        (
            {"weight_multipliers": "fewest=2"},
            "weight_multipliers has 'fewest=2'; use a form such as ram=-1.0; weighers are ram, ",
        ),
    ],
)
def test_a_start_fails_if_a_named_weigher_is_invalid(package, chosen, why):
    with pytest.raises(StartError, match=r"moorage\.conf: \[scheduler\] ") as error:
        options(**chosen)
    assert why in str(error.value)


def test_with_a_foreign_weigher_more_hosts_than_a_sample_are_compared(plane, with_filters):
    """The preference of the weigher is unknown, so the best of a few hosts may be far from the best of all."""
    placed(plane, with_filters(weighers="fewest"), 1)
    placed(plane, with_filters(), 1)
    asked = [
        (parse_qs(request.path.partition("?")[2])["limit"], SAMPLE in request.headers)
        for request in plane.to_placement.requests
        if request.resource == "/allocation_candidates"
    ]
    assert asked == [(["1000"], False), (["50"], True)]
