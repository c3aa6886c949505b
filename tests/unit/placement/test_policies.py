"""The callers that each selectable policy allows for each rule."""

import pytest

from moorage.core.caller import Caller
from moorage.placement.api.routes import POLICIES


def allowed(policy: str, *roles: str, system: bool = False) -> set[str]:
    rules = POLICIES[policy]
    caller = Caller("u", "p", frozenset(roles), system_scope=system)
    return {rule.removeprefix("placement:") for rule in rules.rules if rules.allows(rule, caller)}


EVERYTHING = {rule.removeprefix("placement:") for rule in POLICIES["new"].rules}


def test_services_do_everything():
    assert all(allowed(policy, "service") == EVERYTHING for policy in POLICIES)


def test_admins_reshape_only_by_the_old_defaults():
    assert EVERYTHING - allowed("new", "admin") == {"reshaper:reshape"}
    assert allowed("old", "admin") == EVERYTHING


@pytest.mark.parametrize("policy", ["new", "old"])
def test_readers_see_their_own_usages_and_nothing_else(policy):
    assert allowed(policy, "reader") == {"usages"}
    assert allowed(policy) == set()


def test_the_open_policy_asks_for_no_role():
    assert allowed("open") == EVERYTHING


@pytest.mark.parametrize("policy", POLICIES)
def test_a_caller_for_the_whole_system_may_do_nothing(policy):
    assert allowed(policy, "admin", "service", system=True) == set()
