"""The page that audits: does what Placement has stored agree with what the other services know? Administrators only."""

from moorage.core.errors import Conflict
from moorage.dashboard.page_request import PageRequest, require_admin
from moorage.dashboard.pages import Page
from moorage.wire.client import ServiceClient

#: Maximum number of findings on the page.
_SHOWN = 500


def show_audit(page_request: PageRequest) -> Page:
    require_admin(page_request)
    return Page("audit.html", "Audit", {"findings": None, "count": 0})


def run_audit(page_request: PageRequest) -> Page:
    """Reads all services with the viewer's token. Repairs nothing."""
    require_admin(page_request)
    dashboard = page_request.http.service

    def client_of(service: str) -> ServiceClient | None:
        return page_request.client(service) if page_request.has(service) else None

    if not dashboard.audit_lock.acquire(blocking=False):
        raise Conflict("another audit is running; repeat yours when it has ended")
    try:
        found = sorted(dashboard.find_all(client_of), key=lambda one: (one.kind, one.where, one.subject))
    finally:
        dashboard.audit_lock.release()
    return Page("audit.html", "Audit", {"findings": found[:_SHOWN], "count": len(found)})
