"""Pages for operators: a refusal that says which role is missing, before a service is asked."""

from moorage.core.errors import Forbidden
from moorage.dashboard.page_request import Visit


def only_admins(visit: Visit) -> None:
    """Raises `Forbidden`. The services decide themselves, too: this is for the words."""
    if visit.who.is_admin:
        return
    roles = ", ".join(sorted(visit.who.roles)) or "none"
    raise Forbidden(
        f"this page is for operators: it needs the role admin, and {visit.who.user_name} has {roles} in the project "
        f"{visit.who.project.name}. Ask an administrator, or switch to a project where you have it",
        code="dashboard.role",
    )
