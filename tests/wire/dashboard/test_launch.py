"""Servers are launched on the page of a lease."""

import re
from datetime import timedelta

import pytest

from tests.wire.dashboard.test_calendar_pages import make, project_of


@pytest.fixture(scope="module")
def image(plane):
    plane.reservation.request("POST", "/v1/os-hosts", json={"name": "compute-1"})
    return plane.create_image(name="guest", visibility="public")


def lease_of(site, plane, name="course 1", **typed):
    end = f"{plane.clock.now() + timedelta(days=1):%Y-%m-%dT%H:%M}"
    lease = make(site, name, start_date="", end_date=end, **typed)
    plane.settle()
    return lease


def test_a_member_launches_servers_on_a_lease(sign_in, plane, image):
    site = sign_in("demo")
    lease = lease_of(site, plane)
    reservation = plane.reservation_id(lease)
    page = site.get(f"/leases/{lease}").text
    assert f'href="/ui/leases/{lease}/launch">Launch</a>' in page
    assert f"openstack server create --flavor {reservation} --image IMAGE --nic none course-1-1</pre>" in page
    form = site.get(f"/leases/{lease}/launch").text
    assert f'<option value="{image}">guest</option>' in form
    typed = {"reservation": reservation, "name": "one", "image": image, "network": "none", "count": "1"}
    missing = site.post(f"/leases/{lease}/launch", **{**typed, "image": ""})
    assert missing.status_code == 400
    assert 'id="image-problem">Image: select one</p>' in missing.text
    done = site.post(f"/leases/{lease}/launch", **typed)
    assert done.status_code == 303, done.text
    server = re.fullmatch(r"/ui/servers/([0-9a-f-]{36})", done.headers["location"])[1]
    plane.settle()
    assert plane.server(server)["status"] == "ACTIVE"
    assert "one" in site.get("/servers").text


def test_servers_on_whole_hosts_get_the_hint_and_any_flavor(sign_in, plane, image):
    site = sign_in("demo")
    for name in ("size 10", "size 9"):
        plane.create_flavor(name)
    twin = plane.create_image(name="guest", visibility="public")
    end = f"{plane.clock.now() + timedelta(days=9):%Y-%m-%dT%H:%M}"
    start = f"{plane.clock.now() + timedelta(days=8):%Y-%m-%dT%H:%M}"
    lease = make(site, "hosts", resource_type="physical:host", min="1", max="1", start_date=start, end_date=end)
    reservation = plane.reservation_id(lease)
    assert f"--hint reservation={reservation} --flavor FLAVOR --image IMAGE" in site.get(f"/leases/{lease}").text
    form = site.get(f"/leases/{lease}/launch").text
    assert "The lease is PENDING" in form
    assert re.findall(">(size[^<]+)</option>", form) == [
        f"size {number}: 1 VCPU, 64 MiB, 1 GiB disk" for number in (9, 10)
    ]
    assert "reservation:" not in form
    assert {f'<option value="{each}">guest ({each[:8]})</option>' in form for each in (image, twin)} == {True}
    answer = site.post(f"/leases/{lease}/launch", reservation=reservation, name="one", image=image, count="1")
    assert 'id="flavor-problem"' in answer.text or "Flavor: select one" in answer.text


def test_a_refusal_for_the_quota_leads_to_the_servers(sign_in, plane, image):
    site = sign_in("demo")
    lease = lease_of(site, plane, "full", amount="2")
    quota = {"quota_set": {"instances": 0, "force": True}}
    path = f"/os-quota-sets/{project_of(sign_in('admin'), 'demo')}"
    plane.compute.request("PUT", path, json=quota)
    typed = {"reservation": plane.reservation_id(lease), "name": "one", "image": image, "network": "none", "count": "1"}
    answer = site.post(f"/leases/{lease}/launch", **typed)
    plane.compute.request("DELETE", path)
    assert (answer.status_code, "Quota exceeded for instances" in answer.text) == (403, True)
    assert 'Delete <a href="/ui/servers">servers</a> that you no longer need' in answer.text


def test_there_is_no_form_for_the_lease_of_another_project(sign_in, plane, image):
    lease = lease_of(sign_in("demo"), plane, "theirs")
    admin = sign_in("admin")
    admin.post("/project", project_id=project_of(admin, "admin"))
    page = admin.get(f"/leases/{lease}/launch")
    assert (page.status_code, "Only that project can launch on it" in page.text) == (200, True)
    assert 'name="image"' not in page.text
    typed = {
        "reservation": plane.reservation_id(lease),
        "name": "stray",
        "image": image,
        "network": "none",
        "count": "1",
    }
    assert admin.post(f"/leases/{lease}/launch", **typed).status_code == 403
    assert "stray" not in admin.get("/servers?all=1").text


def test_nobody_launches_on_the_lease_of_another_project(sign_in, plane, image):
    admin = sign_in("admin")
    admin.post("/project", project_id=project_of(admin, "admin"))
    lease = lease_of(admin, plane, "private")
    reservation = plane.reservation_id(lease)
    member = sign_in("demo")
    assert member.get(f"/leases/{lease}/launch").status_code == 403
    own = lease_of(member, plane, "own")
    typed = {"name": "stolen", "image": image, "network": "none", "count": "1"}
    assert member.post(f"/leases/{lease}/launch", reservation=reservation, **typed).status_code == 403
    answer = member.post(f"/leases/{own}/launch", reservation=reservation, **typed)
    assert (answer.status_code, "select one of this lease" in answer.text) == (400, True)
    ours = plane.reservation_id(own)
    assert (
        member.post(f"/leases/{own}/launch", origin="https://evil.test", reservation=ours, **typed).status_code == 403
    )
    assert member.post(f"/leases/{own}/launch", token="0" * 64, reservation=ours, **typed).status_code == 403
