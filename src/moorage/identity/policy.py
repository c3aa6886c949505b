"""One table of rules per service, by the peers' rule names; what is not in the table is denied.

Ownership ("only your own servers") is not here: services scope their reads by the caller's project, so that a
foreign object is not found instead of forbidden, as the peers do.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from moorage.core.caller import Caller

Rule = Callable[[Caller], bool]

#: Keystone's implied roles: who has the first also has the others.
_IMPLIED = {
    "admin": {"manager", "member", "reader"},
    "manager": {"member", "reader"},
    "member": {"reader"},
}


def anyone(caller: Caller) -> bool:
    """Every authenticated caller."""
    return True


def in_project(caller: Caller) -> bool:
    """Every caller with a token for a project, whatever the roles: what ``@`` is to the peers."""
    return bool(caller.project_id) and not caller.system_scope


def has_role(*names: str) -> Rule:
    """Any of `names`, or a role that implies one of them, held in a project: in a domain or the whole system counts not."""

    def rule(caller: Caller) -> bool:
        return in_project(caller) and not with_implied(caller.roles).isdisjoint(names)

    return rule


@lru_cache(maxsize=256)
def with_implied(roles: frozenset[str]) -> frozenset[str]:
    """With those that they imply, as Keystone's tokens name them."""
    return roles.union(*(_IMPLIED.get(role, set()) for role in roles))


admin = has_role("admin")
service = has_role("service")
admin_or_service = has_role("admin", "service")
reader = has_role("reader", "service")
member = has_role("member", "service")


def agent(caller: Caller) -> bool:
    """The agent of some host, or a service. Of which host, the route asks (`moorage.jobs.job_api`)."""
    return caller.host is not None or admin_or_service(caller)


@dataclass(frozen=True)
class RuleTable:
    """`refusal_text` is the peer's sentence, with ``{rule}`` for the rule's name."""

    rules: Mapping[str, Rule]
    refusal_text: str = "Policy doesn't allow {rule} to be performed."

    def allows(self, rule: str, caller: Caller) -> bool:
        return rule in self.rules and self.rules[rule](caller)

    def refusal(self, rule: str) -> str:
        return self.refusal_text.format(rule=rule)

    def also_allowing(self, rule: Rule) -> "RuleTable":
        """This table, with whoever `rule` allows allowed everywhere too."""

        def either(own: Rule) -> Rule:
            return lambda caller: own(caller) or rule(caller)

        return RuleTable({name: either(own) for name, own in self.rules.items()}, self.refusal_text)
