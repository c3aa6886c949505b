"""The device history, as reported by hosts: who held which handle, and the results of programming and cleaning.

A host reports a record until the service confirms it; a record counts once, by its sequence number on its host.
Records stay when the devices, servers and projects in them are deleted, up to an age that the operator sets.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from moorage.accelerator.model.device_history import (
    MAX_REASON_CHARACTERS,
    MAX_TEXT_CHARACTERS,
    DeviceEvent,
    HistoryRecord,
)
from moorage.accelerator.model.devices import HandleState
from moorage.accelerator.model.rows import HandleRow, HistoryEntry, HistoryFilter, HistoryPosition
from moorage.accelerator.service.deps import AcceleratorDeps
from moorage.accelerator.store import accelerator_store, history_store
from moorage.core.errors import Invalid, NotFound
from moorage.core.ids import is_uuid
from moorage.db.session import in_transaction, read

_MAX_SEQUENCE = (1 << 63) - 1
#: Years that every database can store and convert to another time zone.
_YEARS = range(1970, 3000)


@dataclass(frozen=True)
class DeviceHistoryService:
    deps: AcceleratorDeps

    def write_records(self, host: str, records: Sequence[HistoryRecord]) -> None:
        """Store the records that are not stored yet. Raises `Invalid` and stores nothing if one of them is invalid."""
        for record in records:
            _check_record(record)
        try:
            self._write_once(host, records)
        except IntegrityError:  # the same report arrived twice at once; the second attempt sees the other's records
            self._write_once(host, records)

    def _write_once(self, host: str, records: Sequence[HistoryRecord]) -> None:
        def insert_new_records(connection: Connection) -> None:
            known = history_store.known_sequences(connection, host, [record.sequence for record in records])
            new = {record.sequence: record for record in records if record.sequence not in known}
            history_store.insert_records(connection, host, list(new.values()))

        in_transaction(self.deps.engine, insert_new_records)

    def list_entries(
        self,
        wanted: HistoryFilter,
        device_uuid: str | None,
        after: HistoryPosition | None,
        limit: int,
        *,
        newest_first: bool = False,
    ) -> list[HistoryEntry]:
        """Raises `NotFound` for a device that hosts do not report (any more); filter by host and address instead."""
        with read(self.deps.engine) as connection:
            if device_uuid is not None:
                devices = accelerator_store.devices(connection, uuid=device_uuid)
                if not devices:
                    raise NotFound(
                        f"Device {device_uuid} could not be found. For a device that is gone, search by its "
                        "host and address."
                    )
                wanted = wanted.of(devices[0])
            return history_store.list_entries(connection, wanted, after, limit, newest_first=newest_first)

    def list_handles(self, host: str) -> list[HandleRow]:
        """The attach handles of the host as last reported, with their holders and the reasons of quarantine."""
        with read(self.deps.engine) as connection:
            devices = {device.id: device for device in accelerator_store.devices(connection, hostname=host)}
            requests = {one.pci_id: one for one in accelerator_store.requests(connection, hostname=host) if one.pci_id}
            return [
                HandleRow(
                    handle,
                    state,
                    _quarantine_reason(connection, host, handle, state),
                    devices[part.device_id],
                    part,
                    requests.get(handle),
                )
                for part in accelerator_store.deployables_of(connection, host)
                for handle, state in sorted(part.handles.items())
            ]


def _quarantine_reason(connection: Connection, host: str, handle: str, state: str) -> str:
    if state != HandleState.QUARANTINED:
        return ""
    wanted = HistoryFilter(hostname=host, handle=handle, event=str(DeviceEvent.QUARANTINE))
    return next(
        (one.record.what.reason for one in history_store.list_entries(connection, wanted, None, 1, newest_first=True)),
        "",
    )


def _check_record(record: HistoryRecord) -> None:
    what = record.what
    texts = (what.deployable, what.handle, what.who.project_id, what.who.user_id, what.image_id, what.digest)
    if any(len(text) > MAX_TEXT_CHARACTERS for text in texts) or len(what.reason) > MAX_REASON_CHARACTERS:
        raise Invalid(f"record {record.sequence} has a text of more than {MAX_TEXT_CHARACTERS} characters")
    if what.who.instance_uuid and not is_uuid(what.who.instance_uuid):
        raise Invalid(f"record {record.sequence} names the instance {what.who.instance_uuid!r}, which is not a UUID")
    if not 0 < record.sequence <= _MAX_SEQUENCE or record.at.tzinfo is None:
        raise Invalid(f"record {record.sequence} has an invalid sequence number or a time without a zone")
    if record.at.year not in _YEARS:
        raise Invalid(f"record {record.sequence} is of the year {record.at.year}")
