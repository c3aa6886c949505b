import pytest

from moorage.core.caller import ANONYMOUS, Caller
from moorage.identity.policy import (
    RuleTable,
    admin,
    admin_or_service,
    anyone,
    has_role,
    in_project,
    member,
    reader,
    service,
)


def caller(*roles: str, system: bool = False) -> Caller:
    return Caller("u", "p", frozenset(roles), system_scope=system)


@pytest.mark.parametrize(
    ("roles", "held"),
    [
        (["admin"], {"admin", "member", "reader", "admin_or_service"}),
        (["manager"], {"member", "reader"}),
        (["member"], {"member", "reader"}),
        (["reader"], {"reader"}),
        (["service"], {"service", "admin_or_service", "member", "reader"}),
        (["other"], set()),
        ([], set()),
    ],
)
def test_roles_imply_others_as_in_keystone(roles, held):
    rules = {
        "admin": admin,
        "service": service,
        "member": member,
        "reader": reader,
        "admin_or_service": admin_or_service,
    }
    assert {name for name, rule in rules.items() if rule(caller(*roles))} == held


def test_a_system_scoped_caller_is_no_administrator_of_projects():
    assert not admin(caller("admin", system=True))


def test_a_role_without_a_project_does_not_count():
    """For example the role of a domain-scoped token."""
    outside = Caller("u", "", frozenset({"admin"}))
    assert not admin(outside)
    assert not reader(outside)
    assert not in_project(outside)


def test_a_rule_that_is_not_in_the_table_is_denied_to_every_caller():
    table = RuleTable({"known": anyone})
    assert table.allows("known", ANONYMOUS)
    assert not table.allows("unknown", caller("admin", "service"))
    assert "unknown" in table.refusal_message("unknown")


def test_has_role_accepts_callers_with_a_custom_role():
    assert has_role("fpga_user")(caller("fpga_user"))
    assert not has_role("fpga_user")(caller("member"))


def test_in_project_accepts_all_callers_except_system_scoped_ones():
    assert in_project(caller())
    assert not in_project(caller("admin", system=True))


def test_also_allowing_admits_more_callers_but_adds_no_rules():
    table = RuleTable({"known": service}, "not {rule}").also_allowing(admin)
    assert table.allows("known", caller("service"))
    assert table.allows("known", caller("admin"))
    assert not table.allows("known", caller("member"))
    assert not table.allows("unknown", caller("admin"))
    assert table.refusal_message("known") == "not known"
