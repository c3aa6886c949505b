"""Bare-metal servers of before custom classes, migrated page by page."""

from moorage.compute.api.handlers.views import ComputeRequest
from moorage.core.errors import NotBuilt
from moorage.wire.http import Response


def migrate(request: ComputeRequest) -> Response:
    bare_metal = request.service.bare_metal
    if bare_metal is None:
        raise NotBuilt("This compute service is not connected to a Placement.")
    steps, last = bare_metal.migrate(dry_run=request.json["dry_run"], after=request.json.get("after", ""))
    rows = [
        {
            "node": step.node,
            "server": step.server_id,
            "outcome": step.outcome.value,
            "resource_class": step.resource_class,
            "note": step.note,
        }
        for step in steps
    ]
    return Response(body={"steps": rows, "after": last})
