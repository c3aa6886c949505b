"""The page Search: finds by a part of a name or by an ID, and only what the viewer may see."""

import re
from datetime import timedelta

import pytest

from moorage.core.errors import Unavailable
from moorage.wire.client import ServiceClient
from tests.conftest import START


@pytest.fixture(scope="module")
def things(plane):
    """The administrator's lease and server, with names that HTML and regular expressions could misread."""
    plane.reservation.request("POST", "/v1/os-hosts", json={"name": "compute-1"})
    lease = plane.create_lease(start=START + timedelta(days=1), end=START + timedelta(days=2), amount=1)
    plane.settle()
    server = plane.create_server(flavor=plane.create_flavor("small"), name="web.(1)<b>")
    plane.settle()
    return {
        "lease": lease,
        "server": server,
        "device": plane.accelerator.get("/devices")["devices"][0]["uuid"],
        "root": plane.placement.get("/moorage/v1/trees")["trees"][0]["uuid"],
    }


def links(site, text):
    """{address: name} of the results."""
    answer = site.get("/search", params={"q": text})
    assert answer.status_code == 200, answer.text
    return dict(re.findall(r'<li><a href="/ui([^"]+)">(.*?)</a>', answer.text.partition("<main")[2]))


def test_an_administrator_finds_everything_by_a_part_of_its_name(sign_in, things):
    site = sign_in("admin")
    assert links(site, "COMPUTE-") == {f"/map/{things['root']}": "compute-1"}
    assert links(site, "tea") == {f"/leases/{things['lease']}": "team"}
    assert links(site, "b.(1)<") == {f"/servers/{things['server']}": "web.(1)&lt;b&gt;"}
    assert links(site, "e..1") == {}
    projects, people = links(site, "DEM").items()
    assert projects == ("/people/projects?find=demo", "demo")
    assert people[1] == "demo"
    assert "demo" in site.get(people[0]).text


def test_results_of_the_same_name_can_be_told_apart(sign_in, things):
    site = sign_in("admin")

    def words(text):
        found = site.get("/search", params={"q": text}).text.partition("<main")[2].partition("</ul>")[0]
        return " ".join(re.sub(r"<[^>]+>", " ", found.partition("<ul")[2].partition(">")[2]).split())

    assert words("COMPUTE-").startswith("compute-1 ")
    assert things["root"] not in words("COMPUTE-")
    day, next_day = (f"{START + timedelta(days=days):%Y-%m-%d %H:%M}" for days in (1, 2))
    assert words("tea") == f"team PENDING project admin, by admin, {day} until {next_day}"
    assert words("b.(1)<") == f"web.(1)&lt;b&gt; ERROR project admin, by admin, {things['server']}"
    assert f'<time datetime="{START + timedelta(days=2):%Y-%m-%dT%H:%M:%SZ}">' in site.get("/search?q=team").text


@pytest.mark.parametrize(
    ("kind", "path"), [("lease", "/leases"), ("server", "/servers"), ("device", "/devices"), ("root", "/map")]
)
def test_an_id_leads_to_what_it_names(sign_in, things, kind, path):
    assert [*links(sign_in("admin"), things[kind])] == [f"{path}/{things[kind]}"]
    assert [*links(sign_in("admin"), things[kind].upper())] == [f"{path}/{things[kind]}"]


@pytest.mark.parametrize("text", ["compute", "team", "web", "admin", "lease", "server", "device", "root"])
def test_a_member_finds_nothing_of_others(sign_in, things, text):
    site = sign_in("demo")
    assert links(site, things.get(text, text)) == {}
    seen = site.get("/search", params={"q": things.get(text, text)}).text
    assert "Nothing that you may see" in seen


def test_an_empty_search_says_what_can_be_found(sign_in, things):
    assert "or any ID" in sign_in("demo").get("/search?q=+").text


def test_text_from_the_address_is_escaped(sign_in, things):
    seen = sign_in("demo").get("/search", params={"q": '"><script>x'}).text
    assert "<script>x" not in seen
    assert "&lt;script&gt;x" in seen


def test_a_service_that_does_not_answer_is_named_and_the_others_are_searched(sign_in, things, monkeypatch):
    get = ServiceClient.get

    def silent(self, path, *arguments, **options):
        if path.startswith("/v2.1/servers"):
            raise Unavailable("compute does not answer")
        return get(self, path, *arguments, **options)

    site = sign_in("admin")
    monkeypatch.setattr(ServiceClient, "get", silent)
    assert links(site, "team") == {f"/leases/{things['lease']}": "team"}
    assert "do not answer now: Servers" in site.get("/search?q=team").text
