"""Bare-metal servers of before custom classes, migrated page by page."""

from moorage.compute.api.handlers.views import ComputeCall
from moorage.core.errors import NotBuilt
from moorage.wire.http import Reply


def migrate(call: ComputeCall) -> Reply:
    bare_metal = call.service.bare_metal
    if bare_metal is None:
        raise NotBuilt("This compute service is not connected to a Placement.")
    steps, last = bare_metal.migrate(dry_run=call.json["dry_run"], after=call.json.get("after", ""))
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
    return Reply(body={"steps": rows, "after": last})
