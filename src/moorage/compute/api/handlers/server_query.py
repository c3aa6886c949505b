"""The query of ``GET /servers``: conditions, order and page."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from moorage.compute.api.handlers.views import ComputeRequest, changes_period, parse_flag, require_rule
from moorage.compute.model import lifecycle
from moorage.compute.model.servers import Server, VmState
from moorage.compute.store.server_store import SORT_COLUMNS, ServerQuery
from moorage.core.errors import Invalid

#: A pattern with groups, or with more repetitions than this, could take a regular expression engine years; it is
#: matched as plain text instead.
_MAX_REPETITIONS = 2
_REPETITIONS = re.compile(r"[*+{]")


@dataclass(frozen=True)
class ServerListing:
    query: ServerQuery
    passes: Callable[[Server], bool]


def wanted_servers(request: ComputeRequest, list_rule: str) -> ServerListing:
    """`list_rule`: ``os_compute_api:servers:index`` or ``:detail``; servers of others need its ``:get_all_tenants``."""
    first = request.query.first
    sees_all = (
        parse_flag(first("all_tenants") or "") if first("all_tenants") is not None else "all_tenants" in _bare(request)
    )
    if sees_all:
        require_rule(request, f"{list_rule}:get_all_tenants")
    is_admin = request.caller.is_admin or request.caller.is_service
    project_id = first("project_id") or first("tenant_id")
    since, before = changes_period(request, before_since=(2, 66))
    query = ServerQuery(
        project_id=project_id if sees_all else request.caller.project_id,
        user_id=first("user_id"),
        host=first("host") or first("node") if is_admin else None,
        flavor_id=first("flavor"),
        image_id=first("image"),
        uuids=request.query.every("uuid") or None,
        vm_states=_vm_states(request),
        deleted=is_admin and parse_flag(first("deleted") or False),
        softly_deleted="SOFT_DELETED" in _statuses(request) or first("vm_state") == VmState.SOFT_DELETED,
        changed_since=since,
        changed_before=before,
        sort=_sort(request),
    )
    return ServerListing(query, _predicate(request))


def name_matches(pattern: str) -> Callable[[str], bool]:
    """Matches anywhere as a regular expression; as plain text if it is not a valid one, or a dangerous one."""
    if "(" in pattern or len(_REPETITIONS.findall(pattern)) > _MAX_REPETITIONS:
        return lambda name: pattern in name
    try:
        search = re.compile(pattern).search
    except re.error:
        return lambda name: pattern in name
    return lambda name: pattern == name or search(name) is not None


def _bare(request: ComputeRequest) -> set[str]:
    """Parameters without a value: ``?all_tenants``."""
    return {name for name in request.query.names() if "" in request.query.every(name)}


def _vm_states(request: ComputeRequest) -> list[VmState] | None:
    named = request.query.first("vm_state")
    if named is None:
        return None
    return [state for state in VmState if state == named]


def _sort(request: ComputeRequest) -> list[tuple[str, bool]]:
    keys, directions = request.query.every("sort_key"), request.query.every("sort_dir")
    for key in keys:
        if key not in SORT_COLUMNS:
            raise Invalid(
                f"Invalid input for query parameters sort_key. Value: {key}; valid keys: {', '.join(SORT_COLUMNS)}"
            )
    for direction in directions:
        if direction not in ("asc", "desc"):
            raise Invalid(f"Invalid input for query parameters sort_dir. Value: {direction}")
    order: dict[str, bool] = {}
    for at, key in enumerate(keys):  # only the first occurrence of a key counts
        order.setdefault(key, (directions[at] if at < len(directions) else "desc") == "desc")
    return list(order.items())


def _statuses(request: ComputeRequest) -> set[str]:
    return {status.upper() for status in request.query.every("status") if status != "None"}


def _predicate(request: ComputeRequest) -> Callable[[Server], bool]:
    """The conditions that SQL does not evaluate."""
    first = request.query.first
    tests: list[Callable[[Server], bool]] = []
    if statuses := _statuses(request):
        tests.append(lambda server: lifecycle.status(server.vm_state, server.task_state) in statuses)
    if (pattern := first("name")) is not None:
        matches = name_matches(pattern)
        tests.append(lambda server: matches(server.name))
    if (task := first("task_state")) is not None:
        tests.append(lambda server: server.task_state == task)
    if (reservation := first("reservation_id")) is not None:
        tests.append(lambda server: server.reservation_id == reservation)
    if (zone := first("availability_zone")) is not None:
        tests.append(lambda server: server.wanted_zone == zone)
    if first("ip") is not None or first("ip6") is not None:
        tests.append(lambda server: False)  # no server has an address: there is no network service
    if (locked := first("locked")) is not None and request.version >= (2, 73):
        is_wanted = parse_flag(locked)
        tests.append(lambda server: (server.locked_by is not None) == is_wanted)
    if request.version >= (2, 26):
        tests += _tag_tests(request)
    return lambda server: all(test(server) for test in tests)


def _tag_tests(request: ComputeRequest) -> list[Callable[[Server], bool]]:
    def named(parameter: str) -> frozenset[str] | None:
        text = request.query.first(parameter)
        return None if text is None else frozenset(text.split(","))

    tests: list[Callable[[Server], bool]] = []
    if (every := named("tags")) is not None:
        tests.append(lambda server: every <= set(server.tags))
    if (some := named("tags-any")) is not None:
        tests.append(lambda server: not some.isdisjoint(server.tags))
    if (not_all := named("not-tags")) is not None:
        tests.append(lambda server: not not_all <= set(server.tags))
    if (none := named("not-tags-any")) is not None:
        tests.append(lambda server: none.isdisjoint(server.tags))
    return tests
