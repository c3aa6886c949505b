"""Builds the audit entry of a request: initiator, project, address, action, target and outcome.

Entries contain an allow-list: no headers except the named ones, of the query only ids, and of the body only ids and the
name of an action.

Not here: writing the trail (`moorage.telemetry.trail`), and which requests have an entry (`Route.effect`).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any
from urllib.parse import parse_qsl

from moorage.core.caller import ANONYMOUS, Caller
from moorage.core.json import Json
from moorage.telemetry.logs import global_request
from moorage.telemetry.trail import Trail
from moorage.wire.http import Response, Route

#: Bounds of one entry: ids in it, and parts of a body that are searched for ids.
MAX_IDS = 20
_MAX_SEARCHED = 1000

_MAX_ROLES = 16

#: {error code: status} of rejections that get an entry on every route: a wrong password in an Authorization header.
_FAILED_LOGINS = {"identity.password": 401, "identity.too_many": 429}

_UUID = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}\Z", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_VERSION = re.compile(r"v\d+(\.\d+)?\Z")
#: The key of an ``/action`` body that names the action: ``reboot``, ``os-stop``, ``addTenantAccess``.
_ACTION = re.compile(r"[A-Za-z][A-Za-z_-]{1,40}\Z")

#: Fields that identify a resource in a response; the first one present counts.
_IDS = ("id", "uuid", "server_uuid", "name")


#: Query parameters whose values may be names. Of other parameters, only UUIDs are recorded.
_NAME_PARAMETERS = frozenset({"value"})


@dataclass(frozen=True, slots=True)
class EntryTemplate:
    """The parts of an entry that are the same for all requests to one route."""

    service: str
    action: str  #: the policy rule; for a route without one: ``identity:POST /v3/auth/tokens``
    target_type: str  #: ``compute/servers``
    route: str  #: ``POST /v2.1/servers/{server_id}/action``
    names_action: bool  #: the body's key is the action
    is_routine: bool
    ids_in_query: tuple[str, ...] = ()

    @classmethod
    def for_route(cls, service: str, route: Route[Any]) -> "EntryTemplate":
        path = route.path.removesuffix(".json")
        words = [word for word in path.split("/") if word and not word.startswith("{") and not _VERSION.match(word)]
        names_action = bool(words) and words[-1] == "action"
        kinds = [word for word in (words[:-1] if names_action else words) if word not in ("moorage", "agent")]
        rule = route.rule or f"{route.method} {path}"
        return cls(
            service,
            rule if ":" in rule.partition("/")[0] else f"{service}:{rule}",
            "/".join([service, *kinds]),
            f"{route.method} {path}",
            names_action,
            route.effect == "routine",
            route.ids_in_query,
        )


class AuditedChange:
    """A request that may change something, while it is being handled. The kernel fills it in."""

    __slots__ = ("_document", "_who", "code", "params", "response", "status", "template")

    def __init__(self, template: EntryTemplate, params: Mapping[str, str]) -> None:
        self.template = template
        self.params = params
        self.response: Response | None = None
        self.code = ""  #: error code of a rejection
        self.status: int | None = None  #: the outcome, if it differs from the response's status
        self._document: object = None
        self._who: dict[str, str] = {}

    def set_body(self, document: object) -> None:
        self._document = document

    def set_initiator(self, **who: str) -> None:
        """Name the initiator of a request without a token: ``id``, ``name``, ``project_id``, ``project_name``."""
        self._who |= {name: value for name, value in who.items() if value}

    def build_entry(
        self, trail: Trail, caller: Caller, address: str, query: str, request_id: str, status: int | None
    ) -> dict[str, Json]:
        """The entry. `status` is that of the response; None before the change."""
        template, status = self.template, self.status or status
        reason = {} if status is None else {"reasonType": "HTTP", "reasonCode": str(status)}
        if self.code:
            reason["code"] = self.code
        entry: dict[str, Json] = {
            "action": f"{template.action}/{name}" if (name := self._action()) else template.action,
            "outcome": "pending" if status is None else "success" if status < 400 else "failure",
            "initiator": self._initiator(trail, caller, address),
            "target": self._target(query, status),
            "observer": {"typeURI": f"service/{template.service}", "id": trail.observer},
            "route": template.route,
            "request_id": request_id,
        }
        if given := global_request.get():
            entry["global_request_id"] = given
        if reason:
            entry["reason"] = reason
        return entry

    def _action(self) -> str:
        if self.template.names_action and isinstance(self._document, dict):
            return next((key for key in self._document if isinstance(key, str) and _ACTION.match(key)), "")
        return ""

    def _initiator(self, trail: Trail, caller: Caller, address: str) -> dict[str, Json]:
        who: dict[str, Json] = {"typeURI": "service/security/account/user"}
        if caller is not ANONYMOUS:
            who["id"] = caller.user_id
            if caller.user_name:
                who["name"] = caller.user_name
            who["project_id"] = caller.project_id
            if caller.project_name:
                who["project_name"] = caller.project_name
            who["roles"] = sorted(caller.roles)[:_MAX_ROLES]
            if trail.knows_services and (caller.by_service or caller.is_service):
                who["is_service"] = True
        who |= self._who
        who["host"] = {"address": address or "local"}
        return who

    def _target(self, query: str, status: int | None) -> dict[str, Json]:
        target: dict[str, Json] = {"typeURI": self.template.target_type}
        ids = list(self.params.values()) or list(islice(self._ids(query, status), MAX_IDS + 1))
        if ids:
            target["id"] = ids[0]
        if len(ids) > 1:
            if self.params:
                target["part"] = "/".join(ids[1:])
            else:
                target["ids"] = ids[:MAX_IDS]
                if len(ids) > MAX_IDS:
                    target["has_more"] = True
        return target

    def _ids(self, query: str, status: int | None) -> Iterator[str]:
        """The target of a request whose path has no id: the resources it created, else those named in body or query."""
        made = [] if self.response is None or status is None or status >= 400 else _created_ids(self.response)
        if made:
            return iter(made)
        named = _uuid_keys(self._document)
        return iter(named or _query_ids(query, self.template.ids_in_query))


def failed_login_change(service: str, code: str) -> AuditedChange | None:
    """The entry of a request that was rejected for its password, on any route; None for other rejections."""
    if code not in _FAILED_LOGINS:
        return None
    change = AuditedChange(EntryTemplate(service, f"{service}:authenticate", "identity/users", "*", False, False), {})
    change.code, change.status = code, _FAILED_LOGINS[code]  # a public route still answers with 200
    return change


def _created_ids(response: Response) -> list[str]:
    body = response.body
    if isinstance(body, dict):
        if found := _id_of(body):
            return [found]
        for value in body.values():
            if isinstance(value, dict) and (found := _id_of(value)):
                return [found]
            if isinstance(value, list):
                rows = [_id_of(row) for row in value[: MAX_IDS + 1] if isinstance(row, dict)]
                if ids := [row for row in rows if row]:
                    return ids
    location = response.headers.get("location", "") if response.status < 300 else ""
    return [location.partition("?")[0].rsplit("/", 1)[-1]] if location else []


def _id_of(row: Mapping[str, object]) -> str:
    """The id of a resource as text. Aggregates have numbers."""
    return next((str(row[name]) for name in _IDS if isinstance(row.get(name), str | int) and row[name] != ""), "")


def _uuid_keys(document: object) -> list[str]:
    """UUIDs among the keys of the body's first two levels, as in ``{"allocations": {consumer: ...}}``."""
    if not isinstance(document, dict):
        return []
    below: Iterable[object] = (key for value in document.values() if isinstance(value, dict) for key in value)
    return _uuids(document) or _uuids(islice(below, _MAX_SEARCHED))


def _uuids(values: Iterable[object]) -> list[str]:
    found = (value for value in islice(values, _MAX_SEARCHED) if isinstance(value, str) and _UUID.match(value))
    return list(islice(found, MAX_IDS + 1))


def _query_ids(query: str, naming: Sequence[str]) -> list[str]:
    """Ids in the query parameters `naming`.

    Others are ignored, so that a caller cannot put arbitrary text before them.
    """
    pairs: Sequence[tuple[str, str]] = parse_qsl(query) if query and naming else ()
    words = ((name, word) for name, value in pairs if name in naming for word in value.split(","))
    return list(islice((word for name, word in words if name in _NAME_PARAMETERS or _UUID.match(word)), MAX_IDS + 1))
