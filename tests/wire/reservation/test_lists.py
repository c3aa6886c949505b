"""Pages and filters of lists, from microversion 1.1 on (G7)."""

import pytest

from moorage.wire.client import decode_body
from tests.wire.reservation.plane import instance, lease

SMALL = {"memory_mb": 1, "disk_gb": 0}


@pytest.fixture(scope="module")
def leased(new_shared):
    """A plane with five leases of `demo`, each on its own day; no test changes it."""
    return new_shared(_leased)


def _leased(plane):
    plane.add_host()
    plane.register()
    for day in range(5):
        body = lease(
            instance(**SMALL), name=f"l{day}", start=f"2026-03-0{day + 3} 10:00", end=f"2026-03-0{day + 4} 10:00"
        )
        plane.ask("POST", "/v1/leases", body, status=201)


def names(plane, query, *, status=200, **who):
    got, answer = plane.answer("GET", f"/v1/leases{query}", version="1.1", **who)
    assert got == status, answer
    return [each["name"] for each in answer["leases"]] if status == 200 else answer["error_message"]


def test_a_page_has_the_requested_size_and_a_link_to_the_next(leased):
    first = leased.ask("GET", "/v1/leases?limit=2&sort_key=start_date", version="1.1")
    assert [each["name"] for each in first["leases"]] == ["l0", "l1"]
    (link,) = first["leases_links"]
    assert link["rel"] == "next"
    second = leased.ask("GET", link["href"].partition("/reservation")[2], version="1.1")
    assert [each["name"] for each in second["leases"]] == ["l2", "l3"]
    marker = second["leases"][-1]["id"]
    last = leased.ask("GET", f"/v1/leases?limit=2&sort_key=start_date&marker={marker}", version="1.1")
    assert [each["name"] for each in last["leases"]] == ["l4"]
    assert list(last) == ["leases"]


def test_the_pages_have_the_leases_of_the_whole_list(leased):
    whole = leased.ask("GET", "/v1/leases")["leases"]
    by_id = {each["id"]: each for each in whole}
    page = leased.ask("GET", "/v1/leases?limit=3", version="1.1")["leases"]
    assert len(page) == 3
    assert all(as_before(each) == by_id[each["id"]] for each in page)


def as_before(lease):
    """A lease without the keys that microversion 1.1 adds."""
    events = [{name: value for name, value in event.items() if name != "error"} for event in lease["events"]]
    return {name: value for name, value in lease.items() if name != "before_end_actions"} | {"events": events}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("?name=l3", ["l3"]),
        ("?status=ACTIVE", []),
        ("?sort_key=end_date&sort_dir=desc&limit=2", ["l4", "l3"]),
        ("?sort_key=start_date&ends_after=2026-03-05%2010:00&starts_before=2026-03-06%2010:00", ["l2"]),
        ("?project_id=other", []),
    ],
)
def test_leases_are_filtered(leased, query, found):
    assert names(leased, query) == found


@pytest.mark.parametrize(
    "query",
    ["?limit=0", "?limit=-1", "?limit=x", "?sort_key=name", "?sort_dir=up", "?status=active", "?colour=red",
     "?ends_after=2026-03-05", "?ends_after=2026-13-05%2010:00", "?marker=nothing"],
)  # fmt: skip
def test_invalid_list_parameters_are_refused(leased, query):
    assert query[1:].partition("=")[0] in names(leased, query, status=400).replace("invalid date", "ends_after")


def test_before_1_1_the_query_is_ignored(leased):
    """The answers are the same, byte for byte, with and without it, as in the peer."""
    plain, asked = (
        leased.client("reservation").request_raw("GET", f"/v1/leases{query}") for query in ("", "?limit=1&colour=red")
    )
    assert plain.body == asked.body
    assert len(decode_body(plain)["leases"]) == 5
    assert b"links" not in plain.body


def test_members_see_only_leases_of_their_project(leased):
    """LP#2120655"""
    demo = {"user": "u", "project": "demo", "roles": ("member",)}
    other = {"user": "u", "project": "other", "roles": ("member",)}
    assert len(names(leased, "", **demo)) == 5
    assert names(leased, "", **other) == []
    assert "administrator" in names(leased, "?project_id=demo", status=403, **other)
    marker = leased.ask("GET", "/v1/leases")["leases"][0]["id"]
    assert names(leased, f"?marker={marker}", status=400, **other) == f"marker [{marker}] not found"


def test_hosts_are_listed_in_pages(plane):
    for number in (2, 3, 4):
        plane.add_host(f"compute-{number}", vcpus=number)
    for number in (1, 2, 3, 4):
        plane.register(f"compute-{number}", rack=str(number % 2))

    def ask(query, path="/v1/os-hosts"):
        return plane.ask("GET", f"{path}{query}", version="1.1")

    first = ask("?limit=3")
    assert [each["id"] for each in first["hosts"]] == ["1", "2", "3"]
    assert [each["id"] for each in ask("?limit=3&marker=3")["hosts"]] == ["4"]
    assert first["hosts_links"][0]["href"].endswith("/v1/os-hosts?limit=3&marker=3")
    assert first["hosts"] == plane.ask("GET", "/v1/os-hosts")["hosts"][:3]
    assert [each["id"] for each in ask("?hypervisor_hostname=compute-2")["hosts"]] == ["2"]
    assert ask("?reservable=false") == {"hosts": []}
    odd = ask("?properties=[%22=%22,%22$rack%22,%221%22]&limit=1")
    assert [each["id"] for each in odd["hosts"]] == ["1"]
    assert [each["id"] for each in ask("?properties=[%22=%22,%22$rack%22,%221%22]&limit=1&marker=1")["hosts"]] == ["3"]
    made = plane.ask(
        "POST", "/v1/leases", lease(instance(2, **SMALL, resource_properties='["=","$id","2"]')), status=201
    )
    held = ask("?limit=2", "/v1/os-hosts/allocations")
    assert [len(each["reservations"]) for each in held["allocations"]] == [0, 2]
    assert held["allocations"][1]["reservations"][0]["lease_id"] == made["lease"]["id"]
    assert held["allocations_links"][0]["href"].endswith("marker=2")
    assert plane.answer("GET", "/v1/os-hosts?limit=3", user="u", roles=("member",), version="1.1")[0] == 403
