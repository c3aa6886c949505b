"""The users file of earlier versions: validates it, and turns it into records. It is imported once, at the first start.

::

    projects:
      demo: {id: 0f6e...}
    users:
      alice:
        id: 7c1d...
        password: $2b$10$...          # bcrypt; `htpasswd -nBC 10 alice` prints one
        default_project: demo         # optional
        roles:
          demo: [member]              # admin, manager, member, reader, service, or names of your own

An error names the file, the line and the remedy. A file that others may write is rejected, because it grants the role
admin.
"""

import os
import stat
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import yaml

from moorage.core.errors import StartError
from moorage.identity.model import Accounts, Assignment, Change, Project, Role, User

_ID = {"type": "string", "pattern": r"^[A-Za-z0-9_.-]{1,64}$"}
_NAME = {"type": "string", "minLength": 1, "maxLength": 255}
_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["projects", "users"],
    "properties": {
        "projects": {
            "type": "object",
            "propertyNames": _NAME,
            "additionalProperties": {
                "type": "object",
                "additionalProperties": False,
                "required": ["id"],
                "properties": {"id": _ID, "description": {"type": "string"}, "enabled": {"type": "boolean"}},
            },
        },
        "users": {
            "type": "object",
            "propertyNames": _NAME,
            "additionalProperties": {
                "type": "object",
                "additionalProperties": False,
                "required": ["id", "password", "roles"],
                "properties": {
                    "id": _ID,
                    "password": {"type": "string", "pattern": r"^\$2[aby]\$[0-9]{2}\$[./A-Za-z0-9]{53}$"},
                    "default_project": _NAME,
                    "enabled": {"type": "boolean"},
                    "roles": {
                        "type": "object",
                        "propertyNames": _NAME,
                        "additionalProperties": {
                            "type": "array",
                            "minItems": 1,
                            "items": {"type": "string", "pattern": "^[a-z0-9_.-]{1,64}$"},
                        },
                    },
                },
            },
        },
    },
}


def read_users_file(path: Path) -> str:
    """The text. Raises `StartError` if there is none, or if others may write it."""
    try:
        with path.open(encoding="utf-8") as file:
            status = os.fstat(file.fileno())
            if status.st_mode & 0o022:
                raise StartError(
                    f"{path} (mode {stat.S_IMODE(status.st_mode):04o}) can be written by others, but it decides who is "
                    f"admin; remove that right: chmod go-w {path}"
                )
            if status.st_uid not in (0, os.geteuid()):
                raise StartError(
                    f"{path} belongs to uid {status.st_uid}; change its owner: chown {os.geteuid()} {path}"
                )
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(f"the users file {path} cannot be read: {error}") from error


def parse_accounts(text: str, where: str) -> Accounts:
    """The accounts in `text`; `where` is the name of its file in error messages."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"{where}:{mark.line + 1}" if mark else where
        raise StartError(f"{line}: not valid YAML: {getattr(error, 'problem', None) or error}") from error
    _check_unique_keys(root, where)
    for fault in _validator().iter_errors(document):
        raise StartError(f"{where}:{_line(root, fault.instance_path)}: {_fault_message(fault)}")
    return _accounts(document, root, where)


def records_of(accounts: Accounts) -> Change:
    """The records of a users file. The id of a role is its name."""
    names = {role for user in accounts.users.values() for roles in user.roles.values() for role in roles}
    assignments = [
        Assignment(role, "user", user.id, "project", project_id)
        for user in accounts.users.values()
        for project_id, roles in user.roles.items()
        for role in sorted(roles)
    ]
    roles = [Role(name, name) for name in sorted(names)]
    return Change(added=(*accounts.projects.values(), *accounts.users.values(), *roles, *assignments))


@cache
def _validator() -> Any:
    return jsonschema_rs.Draft202012Validator(_SCHEMA)


def _accounts(document: Mapping[str, Any], root: yaml.Node | None, where: str) -> Accounts:
    """The accounts of a document that matches the schema. Checks the rules that a schema cannot express."""
    projects = {
        row["id"]: Project(row["id"], name, row.get("description", ""), row.get("enabled", True))
        for name, row in document["projects"].items()
    }
    ids = {project.name: project.id for project in projects.values()}
    for section in ("projects", "users"):
        counts = Counter(row["id"] for row in document[section].values())
        for name, row in document[section].items():
            if counts[row["id"]] > 1:
                line = _line(root, [section, name, "id"])
                raise StartError(f"{where}:{line}: the id {row['id']} appears twice; give {name} another one")
    users = {}
    for name, row in document["users"].items():
        for project in row["roles"]:
            if project not in ids:
                line = _line(root, ["users", name, "roles", project])
                raise StartError(f"{where}:{line}: there is no project {project}; the projects are {', '.join(ids)}")
        default = row.get("default_project")
        if default is not None and default not in row["roles"]:
            line = _line(root, ["users", name, "default_project"])
            raise StartError(f"{where}:{line}: {name} has no role in its default_project {default}; add one to roles")
        users[row["id"]] = User(
            id=row["id"],
            name=name,
            password_hash=row["password"],
            roles={ids[project]: frozenset(roles) for project, roles in row["roles"].items()},
            default_project_id=ids[default] if default else None,
            enabled=row.get("enabled", True),
        )
    costs = Counter(int(user.password_hash[4:6]) for user in users.values())
    return Accounts(users, projects, costs.most_common(1)[0][0] if costs else Accounts.bcrypt_rounds)


def _check_unique_keys(node: yaml.Node | None, where: str) -> None:
    """Rejects duplicate keys. YAML's loader takes the last of several, which could hide an administrator."""
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            if key.tag != "tag:yaml.org,2002:str":
                raise StartError(
                    f"{where}:{key.start_mark.line + 1}: the name {key.value} must be a string; put it in quotes"
                )
            if key.value in seen:
                raise StartError(f"{where}:{key.start_mark.line + 1}: the key {key.value} appears twice; keep one")
            seen.add(key.value)
            _check_unique_keys(value, where)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _check_unique_keys(value, where)


def _line(node: yaml.Node | None, path: Iterable[str | int]) -> int:
    """The line of the node at `path`, or of its nearest existing ancestor."""
    line = node.start_mark.line if node else 0
    for step in path:
        if isinstance(node, yaml.MappingNode):
            pair = next((pair for pair in node.value if pair[0].value == step), None)
            if pair is None:
                break
            node, line = pair[1], pair[0].start_mark.line
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int):
            node = node.value[step]
            line = node.start_mark.line
    return line + 1


def _fault_message(fault: Any) -> str:
    """The validator's message with the path of the fault; without the value if that may be a password."""
    path: Sequence[str | int] = fault.instance_path
    place = " -> ".join(str(step) for step in path) or "the file"
    if path and path[-1] == "password":
        return f"{place} must be a bcrypt hash ($2b$...), as `htpasswd -nBC 10 NAME` prints one"
    return f"{place}: {fault.message}"
