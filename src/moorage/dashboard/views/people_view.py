"""The tables of people and projects, and the choices of their forms. Pure.

Built from the documents of ``GET /moorage/v1/users``, ``/v3/projects`` and ``/v3/roles``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moorage.dashboard.views.tables import TableColumn

Document = Mapping[str, Any]

_DOMAIN = "default"
#: The role that forms offer first.
USUAL_ROLE = "member"


@dataclass(frozen=True, slots=True)
class ProjectRoles:
    """The roles of a person in a project. `indirect` ones come from a group, a domain or another role."""

    project_id: str
    project: str
    roles: tuple[str, ...]
    indirect: tuple[str, ...]
    is_service: bool = False  #: the services of the plane log in to the project

    @property
    def words(self) -> str:
        return ", ".join((*self.roles, *(f"{role} (indirect)" for role in self.indirect)))


@dataclass(frozen=True, slots=True)
class PersonRow:
    id: str
    name: str
    #: ``enabled``, ``disabled``, ``invited`` (has no password yet), or ``locked`` (must wait after failed sign-ins)
    state: str
    tone: str
    is_enabled: bool
    is_service: bool  #: the user of the services
    has_password: bool
    locked_until: str
    failed_logins: int
    addresses: tuple[str, ...]
    password_changed_at: str
    invited_until: str
    projects: tuple[ProjectRoles, ...]


@dataclass(frozen=True, slots=True)
class MemberRow:
    id: str
    name: str
    words: str  #: the roles


@dataclass(frozen=True, slots=True)
class ProjectRow:
    id: str
    name: str
    description: str
    is_enabled: bool
    is_service: bool  #: the services of the plane log in to it
    members: tuple[MemberRow, ...]


PEOPLE: Sequence[TableColumn[PersonRow]] = (
    TableColumn("name", "Name", lambda row: row.name),
    TableColumn("state", "State", lambda row: row.state),
    TableColumn("password", "Password since", lambda row: row.password_changed_at),
    TableColumn("projects", "Projects", lambda row: ", ".join(f"{one.project} {one.words}" for one in row.projects)),
)
PROJECTS: Sequence[TableColumn[ProjectRow]] = (
    TableColumn("name", "Name", lambda row: f"{row.name} {row.description}".strip()),
    TableColumn("state", "State", lambda row: "enabled" if row.is_enabled else "disabled"),
    TableColumn("members", "Members", lambda row: ", ".join(f"{one.name} {one.words}" for one in row.members)),
)


def person_rows(users: Iterable[Document]) -> list[PersonRow]:
    return [_person(user) for user in users]


def _person(user: Document) -> PersonRow:
    state, tone = ("locked", "warn") if user["locked_until"] else ("enabled", "good")
    if user["invited_until"] and not user["has_password"]:
        state, tone = "invited", "warn"
    if not user["enabled"]:
        state, tone = "disabled", "bad"
    return PersonRow(
        id=user["id"],
        name=_label(user),
        state=state,
        tone=tone,
        is_enabled=user["enabled"],
        is_service=user["is_service"],
        has_password=user["has_password"],
        locked_until=user["locked_until"] or "",
        failed_logins=user["failed_logins"],
        addresses=tuple(user["addresses"]),
        password_changed_at=user["password_changed_at"] or "",
        invited_until=user["invited_until"] or "",
        projects=tuple(
            ProjectRoles(
                one["id"], one["name"], tuple(one["roles"]), tuple(one["indirect_roles"]), bool(one["is_service"])
            )
            for one in user["projects"]
        ),
    )


def project_rows(projects: Iterable[Document], people: Iterable[PersonRow]) -> list[ProjectRow]:
    members: dict[str, list[MemberRow]] = {}
    of_services: set[str] = set()
    for person in people:
        of_services |= {one.project_id for one in person.projects if one.is_service}
        for one in person.projects:
            members.setdefault(one.project_id, []).append(MemberRow(person.id, person.name, one.words))
    return [
        ProjectRow(
            project["id"],
            _label(project),
            project["description"] or "",
            project["enabled"],
            project["id"] in of_services,
            tuple(members.get(project["id"], ())),
        )
        for project in projects
    ]


def has_role(person: PersonRow, project_id: str, role: str) -> bool:
    """Whether the role was given to the person in the project, not through a group, a domain or another role."""
    return any(role in one.roles for one in person.projects if one.project_id == project_id)


def change_of_person(person: PersonRow, done: str, role: str, project_id: str, project: str) -> str:
    """What the page of the person says after a change, in words; empty if `done` names none, or what is not so.

    `role` and `project` are names; they are empty unless a role was changed.
    """
    name, has = person.name, has_role(person, project_id, role)
    words = {
        "password": f"The new password is set. All sessions and tokens of {name} have ended.",
        "unlocked": f"The failed sign-ins of {name} are forgotten.",
        "withdrawn": "The link is withdrawn.",
    }
    if person.is_enabled:
        words["enabled"] = f"{name} is enabled and can sign in."
    else:
        words["disabled"] = f"{name} is disabled. All sessions and tokens of {name} have ended."
    if role and project and has:
        words["given"] = f"{name} has the role {role} in {project} now."
        words["had"] = f"{name} already had the role {role} in {project}; nothing was changed."
    elif role and project:
        words["taken"] = f"{name} no longer has the role {role} in {project}."
    return words.get(done, "")


def change_of_project(project: ProjectRow | None, done: str) -> str:
    """What the page of projects says after a change, in words; empty if `done` names none."""
    if project is None:
        return ""
    words = {"added": f"{project.name} is added. Give people a role in it on their pages."}
    if project.is_enabled:
        words["enabled"] = f"{project.name} is enabled."
    else:
        words["disabled"] = f"{project.name} is disabled. All tokens for it have ended."
    return words.get(done, "")


def choices(records: Iterable[Document]) -> list[tuple[str, str]]:
    """[(id, name)] of the enabled projects, or of roles, by name."""
    return sorted(((row["id"], _label(row)) for row in records if row.get("enabled", True)), key=lambda one: one[1])


def _label(record: Document) -> str:
    """The name; with its domain, if that is another one than `default`."""
    domain = record.get("domain_id") or _DOMAIN
    return str(record["name"]) if domain == _DOMAIN else f"{record['name']} ({domain})"
