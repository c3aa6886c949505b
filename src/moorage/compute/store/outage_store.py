"""SQL of the record of outages: one row, which every compute process writes regularly."""

from datetime import datetime

from sqlalchemy import Connection, select, update

from moorage.compute.model.outages import OutageRecord
from moorage.compute.store.tables import outage_record

_RECORD = select(outage_record).where(outage_record.c.id == 1).with_for_update()
_WRITE = update(outage_record).where(outage_record.c.id == 1)


def record_write(connection: Connection, now: datetime) -> OutageRecord:
    """Records that compute's database can be written `now`; returns the record after that."""
    row = connection.execute(_RECORD).one()
    past = tuple((datetime.fromisoformat(began), datetime.fromisoformat(ended)) for began, ended in row.past)
    record = OutageRecord(row.written_at, past).after_write(now)
    values = [(began.isoformat(), ended.isoformat()) for began, ended in record.past]
    connection.execute(_WRITE.values(written_at=now, past=values))
    return record
