"""The rules of policies. Each service has one table with upstream's rule names; a rule that is not in it denies.

Ownership ("only your own servers") is not here: as upstream, services limit their reads to the caller's project, so a
foreign object is not found instead of forbidden.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from moorage.core.caller import Caller

Rule = Callable[[Caller], bool]

#: Keystone's implied roles: {role: the roles it implies}.
BUILT_IN_IMPLIED = {
    "admin": {"manager", "member", "reader"},
    "manager": {"member", "reader"},
    "member": {"reader"},
}


def anyone(caller: Caller) -> bool:
    """Every authenticated caller."""
    return True


def in_project(caller: Caller) -> bool:
    """Every caller with a token for a project, with any role or none; upstream writes ``@``."""
    return bool(caller.project_id) and not caller.system_scope


def has_role(*names: str) -> Rule:
    """Callers with one of the roles `names`, or a role that implies one, in a project. Roles in a domain or in the
    whole system do not count.
    """

    def rule(caller: Caller) -> bool:
        return in_project(caller) and not with_implied(caller.roles).isdisjoint(names)

    return rule


@lru_cache(maxsize=256)
def with_implied(roles: frozenset[str]) -> frozenset[str]:
    """`roles` and all roles that they imply, as Keystone's tokens list them."""
    return roles.union(*(BUILT_IN_IMPLIED.get(role, set()) for role in roles))


admin = has_role("admin")
service = has_role("service")
admin_or_service = has_role("admin", "service")
reader = has_role("reader", "service")
member = has_role("member", "service")


def agent(caller: Caller) -> bool:
    """The agent of any host, or a service. The handler checks which host it is (`moorage.jobs.job_api`)."""
    return caller.host is not None or admin_or_service(caller)


@dataclass(frozen=True)
class RuleTable:
    """`refusal_text` is upstream's message, with ``{rule}`` for the rule's name."""

    rules: Mapping[str, Rule]
    refusal_text: str = "Policy doesn't allow {rule} to be performed."

    def allows(self, rule: str, caller: Caller) -> bool:
        return rule in self.rules and self.rules[rule](caller)

    def refusal_message(self, rule: str) -> str:
        return self.refusal_text.format(rule=rule)

    def also_allowing(self, rule: Rule) -> "RuleTable":
        """This table, in which every rule also allows the callers that `rule` allows."""

        def either(own: Rule) -> Rule:
            return lambda caller: own(caller) or rule(caller)

        return RuleTable({name: either(own) for name, own in self.rules.items()}, self.refusal_text)
