"""Images for host agents: the images that a host may read, and images of the disks of its servers.

The host sends only the disk; the job that ordered the image determines its project and name.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine

from moorage.compute.moves.migration_engine import cleanup_queue
from moorage.compute.store import server_store
from moorage.compute.store.server_store import ServerQuery
from moorage.core.errors import NotFound
from moorage.db.session import read
from moorage.images.client import ImageWriter
from moorage.images.views import OwnerView
from moorage.jobs.model import Job, JobState

#: Image properties that identify the backups of one server and type.
_BACKUP_PROPERTIES = ("instance_uuid", "image_type", "backup_type")


@dataclass(frozen=True)
class ServerDisk:
    disk_format: str
    properties: Mapping[str, str]
    size_bytes: int


class DiskImageService:
    """`images` None: no image service is configured."""

    def __init__(self, engine: Engine, images: ImageWriter | None) -> None:
        self._engine = engine
        self._writer = images

    def images_named_for(self, host: str, project_id: str) -> frozenset[str] | None:
        """See `moorage.images.for_hosts.NamedImages`."""
        with read(self._engine) as connection:
            here = ServerQuery(host=host, project_id=project_id, softly_deleted=True)
            servers = list(server_store.find_servers(connection, here))
            payloads = [
                job.payload for job in _open_jobs(connection, host) if _server_of(job).get("project_id") == project_id
            ]
        if not servers and not payloads:
            return None
        ids = {image for server in servers for image in (server.image_id, server.parked_image_id)}
        ids |= {image for payload in payloads for image in (payload["server"].get("image_id"), payload.get("image_id"))}
        return frozenset(image for image in ids if image)

    def upload_disk_image(self, host: str, image_id: str, disk: ServerDisk, chunks: Iterator[bytes]) -> None:
        """Raises `NotFound` if no job that this host has claimed orders the image."""
        writer, job = self._writer_and_job(host, image_id)
        image, view = job.payload["image"], OwnerView(_server_of(job)["project_id"])
        writer.upload(
            view, image_id, image["name"], {**disk.properties, **image.get("properties", {})},
            disk_format=disk.disk_format, size_bytes=disk.size_bytes, chunks=chunks,
        )  # fmt: skip
        rotation = job.payload.get("rotation")
        if rotation is not None:
            backup_properties = {name: image["properties"][name] for name in _BACKUP_PROPERTIES}
            found = writer.find(view, backup_properties)
            for old in found[: max(0, len(found) - rotation)]:
                writer.delete(view, old.id)

    def withdraw_image(self, host: str, image_id: str) -> None:
        """Deletes an announced image that the host could not make, so that clients stop waiting for it. Raises
        `NotFound`.
        """
        writer, job = self._writer_and_job(host, image_id)
        writer.delete(OwnerView(_server_of(job)["project_id"]), image_id)

    def _writer_and_job(self, host: str, image_id: str) -> tuple[ImageWriter, Job]:
        with read(self._engine) as connection:
            jobs = [job for job in _open_jobs(connection, host) if job.state is JobState.CLAIMED]
        for job in jobs:
            if self._writer is not None and job.payload.get("image", {}).get("id") == image_id:
                return self._writer, job
        raise NotFound(f"no job of host {host} orders an image {image_id}")


def _open_jobs(connection: Connection, host: str) -> list[Job]:
    queues = (host, cleanup_queue(host))
    return [job for queue in queues for job in server_store.HOST_JOBS.open_in(connection, queue)]


def _server_of(job: Job) -> Mapping[str, Any]:
    server: Mapping[str, Any] = job.payload.get("server", {})
    return server
