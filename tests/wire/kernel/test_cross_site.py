"""In mode `none`, every changing route refuses requests that a page of another site can make a browser send."""

import re

import pytest

from moorage import rehearsal
from moorage.accelerator.api import routes as accelerator
from moorage.compute.api import routes as compute
from moorage.dashboard import routes as dashboard
from moorage.identity.api import routes as identity
from moorage.images import routes as images
from moorage.placement.api import routes as placement
from moorage.reservation.api import routes as reservation
from tests.plane import InProcessPlane

APIS = {
    "placement": placement.API,
    "compute": compute.API,
    "accelerator": accelerator.API,
    "reservation": reservation.API,
    "image": images.API,
}
#: Routes that the latest microversion does not have exist in the first one.
VERSIONS = {"placement": ("latest", "1.0"), "compute": ("latest", "2.1"), "reservation": ("latest",)}
PLACEHOLDER = re.compile(r"\{[^}]*\}")
FROM_ELSEWHERE = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
OURS = {"host": "127.0.0.1:8778"}


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    """A plane in mode `none`: every caller on this machine is admin."""
    services = "placement,compute,accelerator,reservation,image,dashboard"
    directory = tmp_path_factory.mktemp("nobody")
    sections = {"identity": {"mode": "none"}, "server": {"cors_origins": "https://console.example"}}
    with InProcessPlane(directory, services, authenticator=None, credentials=None, **sections) as plane:
        yield plane


def changing():
    """[(service, method, path, whether it reads JSON)] of the changing routes"""
    return sorted(
        {
            (service, route.method, PLACEHOLDER.sub("x", route.path), route.reads == "json")
            for service, api in APIS.items()
            for route in api.routes
            if route.method not in ("GET", "HEAD")
        }
    )


def asked(plane, service, method, path, headers, body=None):
    """The status of the answer, in the latest microversion that has the route."""
    statuses = [
        plane.send(
            method, f"/{service}{path}", body, who=None, roles=None, version=version, headers=OURS | headers
        ).status
        for version in VERSIONS.get(service, (None,))
    ]
    return next((status for status in statuses if status != 404), 404)


@pytest.mark.parametrize(("service", "method", "path", "reads_json"), changing())
def test_a_page_of_another_site_changes_nothing(plane, service, method, path, reads_json):
    for headers in (FROM_ELSEWHERE, {"origin": "null"}, {"sec-fetch-site": "same-site"}):
        assert asked(plane, service, method, path, headers) == 403
    assert asked(plane, service, method, path, {"origin": "http://127.0.0.1:8778"}) != 403


@pytest.mark.parametrize(
    ("service", "method", "path"), [row[:3] for row in changing() if row[3] and row[1] in ("POST", "PUT", "PATCH")]
)
def test_json_without_its_media_type_is_refused(plane, service, method, path):
    """415; Placement answers 400, and its 404 for missing objects comes first."""
    status = asked(plane, service, method, path, {}, b"{}")
    assert status == (400 if service == "placement" else 415)


def test_the_only_public_changing_routes_are_those_with_a_secret_in_the_body():
    """All these routes belong to identity, which is not served in mode `none`."""
    public = {
        (api.name, route.method, route.path)
        for api in (*APIS.values(), identity.API, rehearsal.API)
        for route in api.routes
        if route.rule is None and route.method not in ("GET", "HEAD")
    }
    host = "/moorage/v1/hosts/{host}"
    assert public == {
        ("identity", "POST", "/v3/auth/tokens"),
        ("identity", "POST", "/v3/users/{user_id}/password"),
        ("identity", "POST", "/moorage/v1/invitations/password"),
        ("identity", "POST", "/moorage/v1/oidc/authorizations"),
        ("identity", "POST", "/moorage/v1/oidc/codes"),
        ("identity", "POST", "/moorage/v1/oidc/id_tokens"),
        ("identity", "POST", f"{host}/credential"),
        ("identity", "PUT", f"{host}/credential"),
        ("identity", "POST", f"{host}/tokens"),
    }


@pytest.mark.parametrize("path", [route.path for route in dashboard.ROUTES if route.method == "POST"])
def test_the_dashboard_accepts_forms_only_from_its_own_pages(plane, path):
    """These routes have no policy rule; the pages themselves check the origin."""
    form = {"content-type": "application/x-www-form-urlencoded", **FROM_ELSEWHERE}
    assert asked(plane, "ui", "POST", PLACEHOLDER.sub("x", path), form, b"a=b") == 403


def test_a_page_of_a_configured_origin_may_change_objects(plane):
    named = {"origin": "https://console.example", "sec-fetch-site": "cross-site", "content-type": "application/json"}
    assert asked(plane, "placement", "PUT", "/traits/CUSTOM_A", named) == 201
