"""Images for host agents: the images that a host may read, and images of the disks of its servers.

The host sends only the disk; the job that ordered the image determines its project and name.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from moorage.compute.deps import ComputeDeps
from moorage.compute.moves.migration_engine import cleanup_queue
from moorage.compute.store import server_store
from moorage.compute.store.server_store import ServerQuery
from moorage.core.errors import NotFound
from moorage.db.session import read
from moorage.images.base import OwnerView
from moorage.images.client import ImageWriter
from moorage.jobs.contract import CONTRACTS, RescueJob, ServerJob, ShelveJob, SnapshotJob, payload_of
from moorage.jobs.model import JobState

#: Image properties that identify the backups of one server and type.
_BACKUP_PROPERTIES = ("instance_uuid", "image_type", "backup_type")


@dataclass(frozen=True)
class ServerDisk:
    disk_format: str
    properties: Mapping[str, str]
    size_bytes: int


@dataclass(frozen=True)
class DiskImageService:
    deps: ComputeDeps

    def images_named_for(self, host: str, project_id: str) -> frozenset[str] | None:
        """See `moorage.images.for_hosts.NamedImages`."""
        with read(self.deps.engine) as connection:
            here = ServerQuery(host=host, project_id=project_id, softly_deleted=True)
            servers = list(server_store.find_servers(connection, here))
            jobs = [job for _, job in _open_jobs(connection, host) if job.server.project_id == project_id]
        if not servers and not jobs:
            return None
        ids = {image for server in servers for image in (server.image_id, server.parked_image_id)}
        ids |= {job.server.image_id for job in jobs} | {job.image_id for job in jobs if isinstance(job, RescueJob)}
        return frozenset(image for image in ids if image)

    def upload_disk_image(self, host: str, image_id: str, disk: ServerDisk, chunks: Iterator[bytes]) -> None:
        """Raises `NotFound` if no job that this host has claimed orders the image."""
        writer, job = self._writer_and_job(host, image_id)
        image, view = job.image, OwnerView(job.server.project_id)
        writer.upload(
            view, image_id, image.name, {**disk.properties, **image.properties},
            disk_format=disk.disk_format, size_bytes=disk.size_bytes, chunks=chunks,
        )  # fmt: skip
        if isinstance(job, SnapshotJob) and job.rotation is not None:
            backup_properties = {name: image.properties[name] for name in _BACKUP_PROPERTIES}
            found = writer.find(view, backup_properties)
            for old in found[: max(0, len(found) - job.rotation)]:
                writer.delete(view, old.id)

    def withdraw_image(self, host: str, image_id: str) -> None:
        """Deletes an announced image that the host could not make, so that clients stop waiting for it. Raises
        `NotFound`.
        """
        writer, job = self._writer_and_job(host, image_id)
        writer.delete(OwnerView(job.server.project_id), image_id)

    def _writer_and_job(self, host: str, image_id: str) -> tuple[ImageWriter, SnapshotJob | ShelveJob]:
        with read(self.deps.engine) as connection:
            jobs = [job for state, job in _open_jobs(connection, host) if state is JobState.CLAIMED]
        for job in jobs:
            if (
                self.deps.image_writer is not None
                and isinstance(job, SnapshotJob | ShelveJob)
                and job.image.id == image_id
            ):
                return self.deps.image_writer, job
        raise NotFound(f"no job of host {host} orders an image {image_id}")


def _open_jobs(connection: Connection, host: str) -> list[tuple[JobState, ServerJob]]:
    """The jobs about servers."""
    queues = (host, cleanup_queue(host))
    jobs = [job for queue in queues for job in server_store.HOST_JOBS.open_in(connection, queue)]
    return [
        (job.state, payload_of(job.kind, job.payload, ServerJob))
        for job in jobs
        if issubclass(CONTRACTS[job.kind].payload, ServerJob)
    ]
