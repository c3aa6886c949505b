"""Backfills of compute rows written by older versions, for `moorage db upgrade`: see `moorage.db.upgrades`."""

from sqlalchemy import Engine, false, func, select

from moorage.compute.requests import quota_service
from moorage.compute.store.tables import servers
from moorage.db.transactions import in_transaction, read
from moorage.db.upgrades import Backfill


def _left(engine: Engine) -> int:
    with read(engine) as connection:
        return connection.execute(
            select(func.count()).select_from(servers).where(servers.c.is_counted == false())
        ).scalar_one()


def _some(engine: Engine) -> int:
    """Handles one project. Servers that were just changed are included; they would be counted at the project's next request."""
    before = _left(engine)
    with read(engine) as connection:
        project = connection.execute(
            select(servers.c.project_id).where(servers.c.is_counted == false()).limit(1)
        ).scalar()
    if project is None:
        return 0
    in_transaction(engine, lambda connection: quota_service.count_project(connection, project))
    return max(0, before - _left(engine))


BACKFILLS = (
    Backfill("counted-servers", "Stores with each server what it counts against its project's limits.", _left, _some),
)
