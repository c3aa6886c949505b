"""SQLite databases that are migrated once per process of tests and then copied: the tables and 377 traits cost 0.1 s."""

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

from sqlalchemy import Engine

from moorage.core.clock import VirtualClock
from moorage.core.ids import SeededIds
from moorage.db.engine import open_engine
from moorage.db.migrations import upgrade
from moorage.placement.service import PlacementService
from tests.conftest import START


def open_migrated(feature: str, directory: Path) -> Engine:
    """The feature's database in `directory`; one that is there already is opened again."""
    path = directory / f"{feature}.sqlite"
    if not path.exists():
        shutil.copy(_template(feature), path)
    return open_engine(f"sqlite:///{path}")


@functools.cache
def _template(feature: str) -> Path:
    directory = Path(tempfile.mkdtemp(prefix="moorage-tests-"))
    atexit.register(shutil.rmtree, directory)
    path = directory / f"{feature}.sqlite"
    engine = open_engine(f"sqlite:///{path}")
    upgrade(engine, feature)
    if feature == "placement":
        PlacementService(engine, VirtualClock(START), SeededIds(0)).start()  # the standard names
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    engine.dispose()
    return path
