"""The unmodified clients against our identity service, over a socket, with six environment variables."""

import json

import httpx
import pytest

from moorage.config import ENDPOINT_PATHS
from tests.processes import cloud, openstack, sdk

pytestmark = [pytest.mark.slow, pytest.mark.clients]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with cloud(tmp_path_factory.mktemp("cloud") / "state") as served:
        yield served


def test_an_admin_runs_the_clients_identity_commands(served):
    answers = openstack(
        served.variables("admin", "demo"),
        ["token", "issue", "-f", "json"],
        ["catalog", "list", "-f", "json"],
        ["project", "list", "-f", "json"],
        ["project", "show", "demo", "-f", "json"],
        ["user", "list", "-f", "json"],
        ["user", "show", "demo", "-f", "json"],
        ["role", "list", "-f", "json"],
        ["domain", "show", "default", "-f", "json"],
        ["versions", "show", "--service", "identity", "-f", "json"],
    )
    token, catalog, projects, project, users, user, roles, domain, versions = (answer.document for answer in answers)
    by_name = {row["Name"]: row["ID"] for row in projects}
    assert set(by_name) == {"admin", "demo", "service"}
    assert token["project_id"] == by_name["demo"] == project["id"]
    assert {row["Type"] for row in catalog} == set(ENDPOINT_PATHS) - {"network"}  # it does not run by default
    assert f"{served.url}/placement" in str(catalog)
    assert {row["Name"] for row in users} == {"admin", "demo", "moorage"}
    assert user["name"] == "demo"
    assert {"admin", "member", "reader", "service"} <= {row["Name"] for row in roles}
    assert domain["id"] == "default"
    assert versions[0]["Status"] == "CURRENT"


def test_a_member_lists_its_own_projects_and_is_refused_the_admins_commands(served):
    issue, projects, own, delete, wrong = openstack(
        served.variables("demo", "demo"),
        ["token", "issue", "-f", "json"],
        ["project", "list", "-f", "json"],
        ["project", "list", "--my-projects", "-f", "json"],
        ["project", "delete", "demo"],
        ["--os-password", "wrong", "token", "issue"],
    )
    assert issue.document["user_id"]
    # The client first asks for all projects, is refused, and then lists the user's own.
    assert [row["Name"] for row in projects.document] == [row["Name"] for row in own.document] == ["demo"]
    assert delete.status != 0
    assert wrong.status != 0
    assert "(HTTP 401)" in wrong.err


def test_keystoneauth_logs_in_changes_its_project_and_renews_its_token(served):
    said = sdk(
        served.variables("admin", "admin"),
        """
import json
from keystoneauth1 import session
from keystoneauth1.identity import v3
auth = cloud.session.auth
token = cloud.session.get_token()
other = session.Session(v3.Token(auth_url=cloud.config.config['auth']['auth_url'], token=token, project_name='demo',
                                 project_domain_id='default'))
unscoped = session.Session(v3.Password(auth_url=cloud.config.config['auth']['auth_url'], unscoped=True,
    username='admin', password=cloud.config.config['auth']['password'], user_domain_name='Default'))
by_name = session.Session(v3.Password(auth_url=cloud.config.config['auth']['auth_url'], project_name='demo',
    username='admin', password=cloud.config.config['auth']['password'], user_domain_name='Default',
    project_domain_name='Default'))
auth.invalidate()
print(json.dumps({
    'projects': [project.name for project in cloud.identity.projects()],
    'image': cloud.image.get_endpoint(),
    'other': other.get_project_id() == cloud.identity.find_project('demo').id,
    'unscoped': unscoped.get_project_id(),
    'by_name': by_name.get_project_id() == other.get_project_id(),
    'roles': other.auth.get_access(other).role_names,
    'length': len(token),
}))
""",
    )
    answer = json.loads(said)
    assert answer["projects"] == ["admin", "demo", "service"]
    assert answer["image"].startswith(f"{served.url}/image")
    assert answer["other"]
    assert answer["unscoped"] is None
    assert answer["by_name"]
    assert sorted(answer["roles"]) == ["admin", "manager", "member", "reader"]
    assert answer["length"] < 512


def test_http_basic_of_keystoneauth_is_accepted(served):
    said = sdk(
        {
            "OS_AUTH_TYPE": "http_basic",
            "OS_ENDPOINT": f"{served.url}/image",
            "OS_USERNAME": "demo",
            "OS_PASSWORD": served.password("demo"),
        },
        """
response = cloud.session.get(cloud.config.config['auth']['endpoint'] + '/v2/images')
print(response.status_code, response.json()['images'])
""",
    )
    assert said == "200 []\n"


def test_identity_headers_of_a_client_have_no_effect(served):
    """Neither headers with underscores, which WSGI applications cannot tell from dashes, nor those that middleware
    sets.
    """
    for headers in (
        {"X_Auth_Token": "admin", "X_Roles": "admin"},
        {"X-Identity-Status": "Confirmed", "X-User-Id": "admin", "X-Project-Id": "admin", "X-Roles": "admin"},
        {"X-Auth-Token": "admin", "X-Roles": "admin"},
    ):
        assert httpx.get(f"{served.url}/identity/v3/projects", headers=headers, trust_env=False).status_code == 401


def test_a_user_can_change_its_password(tmp_path):
    """The client's token then becomes invalid, as in Keystone."""
    with cloud(tmp_path / "state") as served:
        variables = served.variables("demo", "demo")
        old = variables["OS_PASSWORD"]
        issued, changed = openstack(
            variables,
            ["token", "issue", "-f", "json"],
            ["user", "password", "set", "--original-password", old, "--password", "a new one"],
        )
        assert changed.status == 0, changed.err
        before, after = (
            openstack(variables, ["token", "issue"]),
            openstack(variables | {"OS_PASSWORD": "a new one"}, ["token", "issue"]),
        )
        assert "(HTTP 401)" in before[0].err
        assert after[0].status == 0
        token = {"x-auth-token": issued.document["id"]}
        assert httpx.get(f"{served.url}/identity/v3/auth/projects", headers=token).status_code == 401
        wrong, revoked = openstack(
            variables | {"OS_PASSWORD": "a new one"},
            ["user", "password", "set", "--original-password", "wrong", "--password", "x"],
            ["token", "revoke", issued.document["id"]],
        )
        assert "user name or password is wrong" in wrong.err
        assert "(HTTP 404)" in revoked.err


def test_a_token_can_be_revoked(served):
    (issued,) = openstack(served.variables("demo", "demo"), ["token", "issue", "-f", "json"])
    token = issued.document["id"]
    headers = {"x-auth-token": token}
    assert httpx.get(f"{served.url}/identity/v3/auth/projects", headers=headers).status_code == 200
    (revoked,) = openstack(served.variables("admin", "admin"), ["token", "revoke", token])
    assert revoked.status == 0, revoked.err
    assert httpx.get(f"{served.url}/identity/v3/auth/projects", headers=headers).status_code == 401
