"""What the mapping gives, against a slow and obvious version, and what a sign-in leaves in the accounts."""

import string

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from moorage.core.errors import StartError
from moorage.identity.model import AccountDomain, Accounts, Assignment, GroupMember, Project, Role, User, accounts_of
from moorage.identity.oidc.mapping import Grant, MappingRule, grants_of, parse_mapping
from moorage.identity.oidc.people import ProviderPerson, account_change

VALUES = st.sampled_from(["a", "A", " a", "a:b=c", "ä\u202e", "", "*"])
PROJECTS = ("red", "blue")
ROLES = ("member", "reader", "admin")
GRANTS = st.builds(Grant, st.sampled_from([*PROJECTS, "gone"]), st.sampled_from([*ROLES, "gone"]))
RULES = st.lists(st.builds(MappingRule, VALUES, GRANTS), max_size=8)
CLAIMS = st.one_of(
    VALUES,
    st.lists(st.one_of(VALUES, st.integers(), st.none(), st.lists(VALUES))),
    st.none(),
    st.integers(),
    st.dictionaries(VALUES, VALUES),
)
PEOPLE = st.builds(
    ProviderPerson, st.just("https://idp.example"), st.sampled_from("123"), st.sampled_from(["ada", "admin"])
)

LOCAL = Accounts(
    users={"local": User("local", "admin", "$2b$04$")},
    projects={name: Project(name, name) for name in PROJECTS},
    domains={"default": AccountDomain("default", "Default")},
    roles={name: Role(name, name) for name in ROLES},
    assignments=frozenset({Assignment("admin", "user", "local", "project", "red")}),
)


@given(RULES, CLAIMS)
def test_a_grant_is_given_exactly_if_a_rule_names_a_value_of_the_claim(rules, claim):
    values = (
        [claim]
        if isinstance(claim, str)
        else [one for one in claim if isinstance(one, str)]
        if isinstance(claim, list)
        else []
    )
    found = grants_of(rules, claim)
    assert set(found) == {rule.grant for value in values for rule in rules if rule.value == value}
    assert len(found) == len(set(found))


def applied(accounts, change):
    """`accounts` after `change`, as the database would have them."""
    users, domains = dict(accounts.users), dict(accounts.domains)
    assignments, memberships = set(accounts.assignments), set(accounts.memberships)
    homes = {User: users, AccountDomain: domains}
    for row in change.removed:
        (assignments if isinstance(row, Assignment) else memberships).remove(row)
    for row in change.changed:
        assert row.id in homes[type(row)]
        homes[type(row)][row.id] = row
    for row in change.added:
        if isinstance(row, Assignment):
            assert row not in assignments
            assignments.add(row)
        else:
            assert row.id not in homes[type(row)]
            homes[type(row)][row.id] = row
    names = [(user.domain_id, user.name) for user in users.values()]
    assert len(names) == len(set(names)), "names are unique in a domain"
    return accounts_of(
        Accounts(
            users=users, projects=accounts.projects, domains=domains, roles=accounts.roles, groups=accounts.groups,
            assignments=frozenset(assignments), memberships=frozenset(memberships),
        )
    )  # fmt: skip


@given(st.lists(st.tuples(PEOPLE, st.lists(GRANTS, max_size=4)), max_size=6))
def test_after_each_sign_in_the_person_has_the_roles_of_the_grants_and_nobody_else_changes(sign_ins):
    accounts = accounts_of(LOCAL)
    for person, grants in sign_ins:
        before = accounts
        user_id, change = account_change(accounts, person, grants)
        accounts = applied(accounts, change)
        wanted = {(grant.project, grant.role) for grant in grants if grant.project in PROJECTS and grant.role in ROLES}
        user = accounts.users.get(person.user_id)
        held = {(project, role) for project, roles in user.roles.items() for role in roles} if user else set()
        assert held == wanted
        assert (user_id is None) == (not wanted)
        for other_id, other in before.users.items():
            if other_id != person.user_id:
                assert accounts.users[other_id] == other
        if user is not None and wanted:
            assert user.domain_id != "default"
            assert user.default_project_id in {project for project, _ in wanted}
            assert account_change(accounts, person, grants)[1].added == ()
            assert account_change(accounts, person, grants)[1].changed == ()


def test_a_role_through_a_group_ends_too():
    person = ProviderPerson("https://idp.example", "1", "ada")
    accounts = applied(accounts_of(LOCAL), account_change(accounts_of(LOCAL), person, [Grant("red", "member")])[1])
    member = GroupMember(person.user_id, "operators")
    row = Assignment("admin", "group", "operators", "project", "blue")
    accounts = accounts_of(
        Accounts(
            users=accounts.users, projects=accounts.projects, domains=accounts.domains, roles=accounts.roles,
            assignments=accounts.assignments | {row}, memberships=frozenset({member}),
        )
    )  # fmt: skip
    assert accounts.users[person.user_id].roles["blue"] == {"admin"}
    after = applied(accounts, account_change(accounts, person, [Grant("red", "member")])[1])
    assert set(after.users[person.user_id].roles) == {"red"}


@given(st.lists(st.builds(MappingRule, st.text(string.printable, min_size=1, max_size=40), GRANTS), min_size=1))
def test_a_file_of_rules_is_read_as_it_was_written(rules):
    rows = [{"value": rule.value, "project": rule.grant.project, "role": rule.grant.role} for rule in rules]
    assert parse_mapping(yaml.safe_dump(rows), "oidc.yaml") == tuple(rules)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "must be a list of rules"),
        ("a: b", "must be a list of rules"),
        ("- a\n", "rule 1 must have"),
        ("- {value: a, project: p, role: r}\n- {value: a, project: p}\n", "rule 2: role must be"),
        ("- {value: 7, project: p, role: r}\n", "value must be a text"),
        ("- {value: yes, project: p, role: r}\n", "put it in quotes"),
        ("- {value: a, project: p, role: r, rloe: x}\n", "unknown key rloe"),
        ("- {value: a, project: p, role: service}\n", "the role service"),
        ("- {value: [", "is not YAML"),
        ("- !!python/object:os.system {}", "is not YAML"),
        ("- {value: '', project: p, role: r}\n", "1 to 255"),
    ],
)
def test_a_wrong_file_is_refused_with_the_number_of_its_rule(text, reason):
    with pytest.raises(StartError, match=f"oidc.yaml: .*{reason}"):
        parse_mapping(text, "oidc.yaml")
