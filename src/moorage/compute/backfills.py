"""What older programs have left in another form, for `moorage db upgrade`: see `moorage.db.upgrades`."""

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
    """Of one project. Also servers that were changed just now: those count themselves at the project's next request."""
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
    Backfill("counted-servers", "What each server counts against its project's limits is kept with it.", _left, _some),
)
