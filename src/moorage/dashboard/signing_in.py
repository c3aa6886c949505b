"""Sign-in: exchanges a name and password for a token of the identity service, and a token for the signed-in user.

The server side keeps only what the identity service said about a token, for `REMEMBERED`; the browser keeps the token.
"""

import hashlib
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NotRequired, TypedDict
from urllib.parse import quote

import orjson

from moorage.core.clock import Clock
from moorage.core.errors import Forbidden, MoorageError, RemoteError, TooManyRequests, Unauthorized, Unavailable
from moorage.core.json import Json, JsonObject
from moorage.wire.client import decode_body, error_of_response
from moorage.wire.transports import ClientResponse, Transport, outgoing_request_id

log = logging.getLogger(__name__)

#: After a role is revoked, its buttons stay visible for at most this long; the services refuse the actions at once.
REMEMBERED = timedelta(seconds=30)
_MAX_REMEMBERED = 4096
#: How long the names of projects and users are remembered, for how many administrators.
NAMES_REMEMBERED = timedelta(seconds=60)
_MAX_NAMES = 64

_DOMAIN = "default"


@dataclass(frozen=True, slots=True)
class ProjectChoice:
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Person:
    """The user of a page, in one project."""

    user_name: str
    project: ProjectChoice
    roles: frozenset[str]
    projects: tuple[ProjectChoice, ...]  #: all projects of the user, including this one
    token: str | None = field(default=None, repr=False)  #: None if sign-in is off ([identity] mode = none)
    expires_at: datetime | None = None
    user_id: str = ""

    @property
    def is_admin(self) -> bool:
        return "admin" in self.roles


@dataclass(frozen=True, slots=True)
class Names:
    """{id: name} of the projects and users that the viewer may list. An unknown one is shown by its id."""

    projects: Mapping[str, str]
    users: Mapping[str, str]

    def project(self, project_id: str) -> str:
        return self.projects.get(project_id) or _short(project_id)

    def user(self, user_id: str) -> str:
        return self.users.get(user_id) or _short(user_id)


def own_names(person: Person) -> Names:
    """The names that a person knows without asking: of their projects, and their own."""
    return Names({project.id: project.name for project in person.projects}, {person.user_id: person.user_name})


def _short(some_id: str) -> str:
    return f"{some_id[:8]}…" if len(some_id) > 12 else some_id


class SigningIn:
    """Sign-in with one identity service, ours or a Keystone. `transport` leads to its URL without ``/v3``."""

    def __init__(self, transport: Transport, clock: Clock) -> None:
        self._transport = transport
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[bytes, tuple[datetime, Person]] = {}
        self._names: dict[bytes, tuple[datetime, Names]] = {}

    def sign_in(self, name: str, password: str, address: str) -> Person:
        """Signs in to the user's default project, or else to the first one. `address` is the browser's IP address.

        Raises `Unauthorized`, `TooManyRequests`, or `Forbidden` for a user without a project.
        """
        user: JsonObject = {"name": name, "password": password, "domain": {"id": _DOMAIN}}
        return self._in_a_project(*self._issue({"methods": ["password"], "password": {"user": user}}, None, address))

    def _in_a_project(self, token: str, said: "TokenDocument") -> Person:
        if "project" in said:
            return self._remember(token, said)
        projects = self._projects(token)
        if not projects:
            name = said["user"]["name"]
            raise Forbidden(f"{name} has no role in any project; ask an administrator for one")
        return self.switch(token, projects[0].id)

    def provider_name(self) -> str | None:
        """The name of the OpenID provider with which people may sign in; None without one, or if identity is away."""
        try:
            answer = self._send("GET", "/moorage/v1/oidc", None, {})
            return None if answer.status == 404 else str(_checked(answer)["provider"]["name"])
        except MoorageError as error:
            log.warning("the OpenID provider is not known", extra={"reason": error.message})
            return None

    def provider_url(self, secret: str) -> str:
        """The provider's page of sign-in for the browser with this secret. Raises `Unavailable`, `RemoteError`."""
        body = orjson.dumps({"browser_secret": secret})
        return str(_checked(self._send("POST", "/moorage/v1/oidc/authorizations", None, {}, body))["url"])

    def sign_in_with_code(self, answer: Mapping[str, str], address: str) -> Person:
        """Signs in a person whom the provider sent back. `answer`: ``browser_secret``, ``state``, ``code`` and, if the
        provider named it, ``iss``. Raises `Unauthorized`, `TooManyRequests`, `Unavailable`, `RemoteError`.
        """
        headers = {"x-forwarded-for": address} if address else {}
        said = self._send("POST", "/moorage/v1/oidc/codes?nocatalog", None, headers, orjson.dumps(answer))
        _check_password_answer(said)
        document = _checked(said)["token"]
        return self._in_a_project(said.headers.get("x-subject-token", ""), document)

    def switch(self, token: str, project_id: str) -> Person:
        """Issues a token for another project and revokes the current one. Raises `Unauthorized`."""
        person = self._remember(*self._issue({"methods": ["token"], "token": {"id": token}}, project_id))
        # Without cascade: the new token descends from the old one and would be revoked with it.
        self._end(token, "?cascade=false")
        return person

    def person_of_token(self, token: str) -> Person:
        """The user of a token. Raises `Unauthorized` for a token that is not valid."""
        now = self._clock.now()
        known = self._known.get(_mark(token))
        if known is not None and now < known[0]:
            return known[1]
        answer = self._send("GET", "/v3/auth/tokens?nocatalog", token, {"x-subject-token": token})
        if answer.status in (401, 404):
            raise Unauthorized("your session has ended; sign in again", code="dashboard.session_over")
        said = _checked(answer)["token"]
        if "project" not in said:
            raise Unauthorized("the session has no project; sign in again", code="dashboard.session_over")
        return self._remember(token, said)

    def names(self, person: Person) -> Names:
        """The names that the person may list with their own token; only their own ones for a member."""
        own = own_names(person)
        if not person.is_admin or person.token is None:
            return own
        now, mark = self._clock.now(), _mark(person.token)
        kept = self._names.get(mark)
        if kept is not None and now < kept[0]:
            return kept[1]
        found = Names(
            {**self._list(person.token, "projects"), **own.projects}, {**self._list(person.token, "users"), **own.users}
        )
        with self._lock:
            self._names = {each: names for each, names in self._names.items() if names[0] > now}
            if len(self._names) < _MAX_NAMES:
                self._names[mark] = (now + NAMES_REMEMBERED, found)
        return found

    def _list(self, token: str, kind: str) -> dict[str, str]:
        """{id: name}; empty if the identity service does not list them to this person or does not answer."""
        try:
            rows = _checked(self._send("GET", f"/v3/{kind}", token, {}))[kind]
        except MoorageError:
            return {}
        return {row["id"]: row["name"] for row in rows}

    def revoke(self, token: str) -> None:
        """Signs out: revokes the token. If the identity service does not answer, the token ends when it expires."""
        self._end(token, "")

    def change_password(self, person: Person, original: str, new: str, address: str) -> None:
        """Changes the person's own password, which ends all tokens of the person, also the one of the session.

        Raises `Unauthorized` for a wrong `original`, `TooManyRequests`, or `RemoteError`.
        """
        body = orjson.dumps({"user": {"original_password": original, "password": new}})
        path = f"/v3/users/{quote(person.user_id, safe='')}/password"
        headers = {"x-forwarded-for": address} if address else {}
        answer = self._send("POST", path, person.token, headers, body)
        _check_password_answer(answer)
        _check_success(answer)
        self.revoke(person.token or "")

    def accept_invitation(self, code: str, password: str, address: str) -> str:
        """Sets the password of an invited user; returns the user's name.

        Raises `Unauthorized` for a code that is not valid, `TooManyRequests`, or `RemoteError`.
        """
        body = orjson.dumps({"token": code, "password": password})
        headers = {"x-forwarded-for": address} if address else {}
        answer = self._send("POST", "/moorage/v1/invitations/password", None, headers, body)
        _check_password_answer(answer)
        return str(_checked(answer)["user"]["name"])

    def _end(self, token: str, query: str) -> None:
        with self._lock:
            self._known.pop(_mark(token), None)
            self._names.pop(_mark(token), None)
        try:
            answer = self._send("DELETE", f"/v3/auth/tokens{query}", token, {"x-subject-token": token})
        except MoorageError as error:
            log.warning("the token of a session was not revoked", extra={"reason": error.message})
            return  # the cookie is gone either way
        if answer.status not in (204, 401, 404):
            log.warning("the token of a session was not revoked", extra={"reason": error_of_response(answer)[0]})

    def _issue(self, identity: JsonObject, project_id: str | None, address: str = "") -> tuple[str, "TokenDocument"]:
        auth: dict[str, Json] = {"identity": identity}
        if project_id is not None:
            auth["scope"] = {"project": {"id": project_id}}
        # With the browser's address, password guessing is throttled per browser, not for all users of the dashboard.
        headers = {"x-forwarded-for": address} if address else {}
        answer = self._send("POST", "/v3/auth/tokens?nocatalog", None, headers, orjson.dumps({"auth": auth}))
        _check_password_answer(answer)
        return answer.headers.get("x-subject-token", ""), _checked(answer)["token"]

    def _projects(self, token: str) -> tuple[ProjectChoice, ...]:
        rows = _checked(self._send("GET", "/v3/auth/projects", token, {}))["projects"]
        return tuple(ProjectChoice(row["id"], row["name"]) for row in rows)

    def _remember(self, token: str, said: "TokenDocument") -> Person:
        now = self._clock.now()
        expires_at = datetime.fromisoformat(said["expires_at"])
        person = Person(
            user_name=said["user"]["name"],
            project=ProjectChoice(said["project"]["id"], said["project"]["name"]),
            roles=frozenset(role["name"].lower() for role in said.get("roles", ())),
            projects=self._projects(token),
            token=token,
            expires_at=expires_at,
            user_id=said["user"]["id"],
        )
        with self._lock:
            if len(self._known) >= _MAX_REMEMBERED:
                self._known = {mark: kept for mark, kept in self._known.items() if kept[0] > now}
            if len(self._known) < _MAX_REMEMBERED:
                self._known[_mark(token)] = (min(now + REMEMBERED, expires_at), person)
        return person

    def _send(
        self, method: str, path: str, token: str | None, headers: Mapping[str, str], body: bytes | None = None
    ) -> ClientResponse:
        own = {"accept": "application/json", **headers}
        if request_id := outgoing_request_id():
            own["x-openstack-request-id"] = request_id
        if token is not None:
            own["x-auth-token"] = token
        if body is not None:
            own["content-type"] = "application/json"
        return self._transport.send(method, path, own, body)


class NamedDocument(TypedDict):
    id: str
    name: str


class TokenDocument(TypedDict):
    """The keys of a token that are read here."""

    expires_at: str
    user: NamedDocument
    project: NotRequired[NamedDocument]
    roles: NotRequired[list[NamedDocument]]


def _mark(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _check_password_answer(answer: ClientResponse) -> None:
    """Raises `Unauthorized` for a wrong password, and `TooManyRequests` after several."""
    if answer.status == 429:
        retry_after = answer.headers.get("retry-after", "")
        seconds = int(retry_after) if retry_after.isdecimal() else 60
        raise TooManyRequests(error_of_response(answer)[0], code="dashboard.refused", retry_after_s=seconds)
    if answer.status == 401:
        raise Unauthorized(error_of_response(answer)[0], code="dashboard.refused")


def _checked(answer: ClientResponse) -> Any:
    _check_success(answer)
    return decode_body(answer)


def _check_success(answer: ClientResponse) -> None:
    if 200 <= answer.status < 300:
        return
    message, _ = error_of_response(answer)
    said = f"the identity service answered {answer.status}: {message}"
    raise Unavailable(said) if answer.status >= 500 else RemoteError(said, status=answer.status, detail=message)
