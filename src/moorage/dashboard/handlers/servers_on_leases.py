"""Which servers run on which lease, for the pages of both.

A server on reserved capacity has the private flavor of its reservation; one on a whole host has any flavor, and a hint
with the reservation's id.
"""

from collections.abc import Collection
from datetime import timedelta
from typing import Any

from moorage.core.errors import NotFound, RemoteError, Unavailable
from moorage.dashboard.page_request import PageRequest
from moorage.dashboard.views import lease_list, server_list
from moorage.dashboard.views.launch_view import LaunchTarget
from moorage.dashboard.views.lease_form import api_date
from moorage.dashboard.views.servers_view import ServerRow, servers_of_lease
from moorage.wire.client import with_query

#: Servers show their hints from this microversion on. A Nova that has not got it does not say on which lease of whole
#: hosts a server runs.
_WITH_HINTS = "2.100"


def with_hints(page_request: PageRequest, path: str) -> Any:
    """The answer of compute, in which servers have their hints if it has the microversion for them."""
    compute = page_request.client("compute")
    try:
        return compute.get(path, version=_WITH_HINTS)
    except RemoteError as error:
        if error.status != 406:
            raise
        return compute.get(path)


def lease_names(page_request: PageRequest, project_id: str) -> dict[tuple[str, str], tuple[str, str]]:
    """{(project id, reservation id): (lease id, name)} of the leases that run now, of the project or (empty) of all
    that the viewer may see. Empty if the reservation service is missing or does not answer.

    A server names its reservation itself, so a lease is shown only if it is of the server's project.
    """
    if not page_request.has("reservation"):
        return {}
    now = page_request.http.service.clock.now()
    params = {
        "limit": lease_list.READ, "ends_after": api_date(now), "starts_before": api_date(now + timedelta(minutes=1)),
        **({"project_id": project_id} if project_id and page_request.user.is_admin else {}),
    }  # fmt: skip
    try:
        leases = page_request.client("reservation").get("/v1/leases", params=params)["leases"]
    except (Unavailable, NotFound, RemoteError):
        return {}
    return {
        (lease["project_id"], held["id"]): (lease["id"], lease["name"])
        for lease in leases
        for held in lease["reservations"]
    }


def servers_on_lease(
    page_request: PageRequest, project_id: str, targets: Collection[LaunchTarget]
) -> list[ServerRow] | None:
    """The servers on these reservations of a lease of the project; None if compute does not answer.

    The page of a lease asks every few seconds, so compute selects by the flavor if the lease has one reservation of
    servers. Other leases need the project's servers: a list has one flavor at most, and no hint.
    """
    asked: dict[str, object] = {"limit": server_list.READ}
    ids = {each.reservation_id for each in targets}
    if len(ids) == 1 and not any(each.needs_flavor for each in targets):
        asked["flavor"] = next(iter(ids))
    if page_request.user.is_admin:  # who may have launched servers of another project on it
        asked |= {"all_tenants": 1, **({} if "flavor" in asked else {"project_id": project_id})}
    try:
        found = with_hints(page_request, with_query("/v2.1/servers/detail", asked))["servers"]
    except (Unavailable, NotFound, RemoteError):
        return None
    return servers_of_lease(found, ids)
