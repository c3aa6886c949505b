"""Filters with reasons, weighers, and the order that comes of them."""

from dataclasses import dataclass, replace

from moorage.scheduler.filters import HostView, Room, Wanted, rejects
from moorage.scheduler.select import select
from moorage.scheduler.weighers import weight


@dataclass(frozen=True)
class Candidate:
    root_uuid: str
    number: int = 0


GOOD = HostView("h", "r", "nova", is_up=True, is_enabled=True)
ANY = Wanted("server")


def test_each_filter_has_its_reason():
    assert rejects(GOOD, ANY) is None
    assert rejects(replace(GOOD, is_up=False), ANY) == "its compute service is down"
    assert rejects(replace(GOOD, is_enabled=False), ANY) == "its compute service is disabled"
    assert rejects(GOOD, Wanted("server", zone="east")) == "not in availability zone east"
    assert rejects(GOOD, Wanted("server", host="other")) == "another host was asked for"
    assert rejects(GOOD, Wanted("server", zone="nova", host="h")) is None


def room(used):
    return {name: Room(10, used) for name in ("VCPU", "MEMORY_MB", "DISK_GB")}


def test_the_emptier_host_weighs_more():
    assert weight(replace(GOOD, room=room(1)), ANY) > weight(replace(GOOD, room=room(2)), ANY)
    assert weight(replace(GOOD, room={"VCPU": Room(0, 0)}), ANY) == 0.0


def test_hosts_keep_all_their_candidates_in_order():
    hosts = {name: replace(GOOD, name=name, root_uuid=name, room=room(used)) for name, used in (("a", 5), ("b", 1))}
    candidates = [Candidate("a", 1), Candidate("b", 2), Candidate("a", 3)]
    ranking = select(candidates, hosts, ANY)
    assert [(one.host.name, [c.number for c in one.candidates]) for one in ranking.selections] == [
        ("b", [2]),
        ("a", [1, 3]),
    ]


def test_every_host_is_selected_or_has_a_reason():
    hosts = {"a": replace(GOOD, name="a", root_uuid="a"), "b": replace(GOOD, name="b", root_uuid="b", is_up=False)}
    ranking = select([Candidate("a"), Candidate("b"), Candidate("stranger")], hosts, ANY)
    assert [one.host.name for one in ranking.selections] == ["a"]
    assert ranking.rejected == {
        "b": "its compute service is down",
        "stranger": "no compute service has registered it",
    }


def test_reasons_are_counted():
    hosts = {name: replace(GOOD, name=name, root_uuid=name, is_up=name == "c") for name in "abc"}
    ranking = select([Candidate(name) for name in "abc"], hosts, Wanted("server", zone="east"))
    assert ranking.reasons() == "3 hosts: not in availability zone east"


def test_equal_hosts_are_ordered_differently_for_different_servers_and_alike_for_one():
    hosts = {name: replace(GOOD, name=name, root_uuid=name) for name in "abcdef"}
    candidates = [Candidate(name) for name in "abcdef"]

    def first(server):
        return select(candidates, hosts, Wanted(server)).selections[0].host.name

    assert len({first(f"server-{number}") for number in range(50)}) > 3
    assert first("server-1") == first("server-1")
