"""The callers that each selectable policy allows for each rule."""

import pytest

from moorage.core.caller import Caller
from moorage.placement.api.routes import POLICIES


def allowed(policy: str, *roles: str, system: bool = False) -> set[str]:
    rules = POLICIES[policy]
    caller = Caller("u", "p", frozenset(roles), system_scope=system)
    return {rule.removeprefix("placement:") for rule in rules.rules if rules.allows(rule, caller)}


EVERYTHING = {rule.removeprefix("placement:") for rule in POLICIES["new"].rules}


def test_the_role_service_is_allowed_everything():
    assert all(allowed(policy, "service") == EVERYTHING for policy in POLICIES)


def test_the_role_admin_may_reshape_only_with_the_old_policy():
    assert EVERYTHING - allowed("new", "admin") == {"reshaper:reshape"}
    assert allowed("old", "admin") == EVERYTHING


@pytest.mark.parametrize("policy", ["new", "old"])
def test_the_role_reader_may_only_read_the_usages_of_its_project(policy):
    assert allowed(policy, "reader") == {"usages"}
    assert allowed(policy) == set()


def test_the_open_policy_requires_no_role():
    assert allowed("open") == EVERYTHING


@pytest.mark.parametrize("policy", POLICIES)
def test_a_system_scoped_caller_is_allowed_nothing(policy):
    assert allowed(policy, "admin", "service", system=True) == set()
