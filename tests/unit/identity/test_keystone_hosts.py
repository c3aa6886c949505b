"""Users of Keystone that act as the agents of hosts."""

import pytest

from moorage.core.errors import StartError, Unauthorized
from moorage.core.names import QUEUES
from moorage.identity.authentication.keystone import KeystoneTokens, parse_host_users

WHERE = "moorage.conf: [identity] host_users"


def caller(text, user, *, domain="default", roles="member", own_domain="default", **more):
    """The caller for a user that keystonemiddleware has authenticated."""
    tokens = KeystoneTokens(
        auth_url="http://keystone/v3", username="moorage", password="x", hosts=parse_host_users(text, own_domain, WHERE)
    )
    environ = {
        "moorage.keystone": True,
        "HTTP_X_IDENTITY_STATUS": "Confirmed",
        "HTTP_X_USER_ID": "7c1d",
        "HTTP_X_USER_NAME": user,
        "HTTP_X_USER_DOMAIN_ID": domain,
        "HTTP_X_PROJECT_ID": "5f",
        "HTTP_X_ROLES": roles,
    }
    return tokens.authenticate({}, environ | more)


@pytest.mark.parametrize(
    ("text", "user", "host"),
    [
        ("agent-{host}", "agent-compute-1", "compute-1"),
        ("agent-{host}@site", "agent-compute-1@site", "compute-1"),
        ("alice=compute-1, agent-{host}", "alice", "compute-1"),
        ("agent-7=compute-1,agent-{host}", "agent-7", "compute-1"),
    ],
)
def test_a_user_that_matches_the_option_is_the_agent_of_its_host_and_has_no_role(text, user, host):
    found = caller(text, user, roles="admin,service,member")
    assert (found.host, found.roles, found.project_id, found.is_admin) == (host, frozenset(), "", False)


@pytest.mark.parametrize("user", ["moorage", "agent-", "agent", "xagent-compute-1", "Agent-compute-1", ""])
def test_a_user_that_does_not_match_the_option_is_no_agent(user):
    found = caller("agent-{host}, alice=compute-2", user)
    assert (found.host, found.roles) == (None, {"member"})


def test_a_user_of_another_domain_is_no_agent_whatever_its_name():
    """The owner of a domain can create users of any name there."""
    assert caller("agent-{host}", "agent-compute-1", domain="mine").host is None
    assert caller("agent-{host}", "agent-compute-1", domain="").host is None
    assert caller("agent-{host}", "agent-compute-1", domain="infra", own_domain="infra").host == "compute-1"
    assert caller("agent-{host}", "agent-compute-1", own_domain="infra").host is None


@pytest.mark.parametrize("name", [*sorted(QUEUES), "a b", "-x"])
def test_an_agent_user_with_the_name_of_a_queue_or_an_invalid_host_name_is_refused(name):
    with pytest.raises(Unauthorized):
        caller("agent-{host}", f"agent-{name}")


def test_without_the_option_no_user_is_an_agent():
    assert caller("", "agent-compute-1").host is None


@pytest.mark.parametrize(
    "text", ["{host}", "alice", "alice=", "=compute-1", "a-{host},b-{host}", "{x}-{host}", "alice=audit", "a={host}"]
)
def test_an_ambiguous_or_empty_pattern_for_host_users_is_a_start_error(text):
    with pytest.raises(StartError, match=r"\[identity\] host_users has"):
        parse_host_users(text, "default", WHERE)
