"""Images for the agents of hosts, through the service that gives them jobs: server side and client side.

GET <service>/agent/v1/hosts/{host}/images?project=P&NAME=VALUE   ``{"images": [RECORD]}``: bitstreams by properties
GET <service>/agent/v1/hosts/{host}/images/{id}?project=P         ``{"image": RECORD}``
GET <service>/agent/v1/hosts/{host}/images/{id}/file?project=P    its data
PUT compute/agent/v1/hosts/{host}/images/{id}/file                upload the image of a disk that a job orders
DELETE compute/agent/v1/hosts/{host}/images/{id}                  report that the image could not be created

A host has no credentials for the image service. The service reads with its own credentials, in the view of the project
(`base.View`), and only if the host works for that project. The host then gets the images named by its servers and jobs,
their kernels and ramdisks, and bitstreams. So a compromised host can read the images that it works with, but no other
images of its projects.

RECORD has the fields of `base.ImageRecord`. Not here: the set of these images, because each service knows its own
servers and jobs.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Protocol, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from moorage.core.errors import Forbidden, Invalid, NotFound, RemoteError
from moorage.core.json import Json
from moorage.images.base import CHUNK_BYTES, ImageRecord, ImageSource, OwnerView, ProjectView, PublicView, ServiceView
from moorage.jobs.job_api import agent_route
from moorage.wire.client import ServiceClient
from moorage.wire.http import Request, Response, Route

S = TypeVar("S")

#: The region type that an image was made for; an image without it is not a bitstream.
REGION = "region_uuid"

#: Properties of a disk image that name its kernel and ramdisk.
BOOT_IMAGE_PROPERTIES = ("kernel_id", "ramdisk_id")

#: The host's description of a disk, in JSON: ``{"disk_format", "properties"}``.
DISK_HEADER = "x-moorage-disk"
_BINARY = "application/octet-stream"


class NamedImages(Protocol):
    def __call__(self, host: str, project_id: str) -> frozenset[str] | None:
        """Ids of the images named by the project's servers on this host and by its jobs for them. None: the host has
        no work for the project.
        """
        ...


class HostImages:
    """The images that a service provides to its hosts. `source` None: no image service is configured."""

    def __init__(self, source: ImageSource | None, named: NamedImages) -> None:
        self._source = source
        self._named = named

    def find(self, host: str, project_id: str, properties: Mapping[str, str]) -> list[ImageRecord]:
        """Bitstreams with these properties. Raises `Forbidden` if the host has no work for the project."""
        view, _ = self._view(host, project_id)
        try:
            found = self._images.find(view, properties)
        except ValueError as error:
            raise Invalid(str(error)) from error
        return [image for image in found if REGION in image.properties]

    def get(self, host: str, project_id: str, image_id: str) -> ImageRecord:
        """Raises `NotFound` if the image is not for this host, `Forbidden` as `find`."""
        view, named = self._view(host, project_id)
        image = self._images.get(view, image_id)
        if image is None or not (REGION in image.properties or image_id in named or self._boots(view, named, image_id)):
            raise NotFound(f"there is no image {image_id} for host {host}", code="images.not_found")
        return image

    @contextmanager
    def open(self, host: str, project_id: str, image_id: str) -> Iterator[Iterator[bytes]]:
        """Raises as `get`."""
        self.get(host, project_id, image_id)
        view, _ = self._view(host, project_id)
        with self._images.open(view, image_id) as chunks:
            yield chunks

    @property
    def _images(self) -> ImageSource:
        if self._source is None:
            raise NotFound("there is no image service", code="images.not_found")
        return self._source

    def _view(self, host: str, project_id: str) -> tuple[ServiceView, frozenset[str]]:
        if not project_id:
            return PublicView(), frozenset()
        named = self._named(host, project_id)
        if named is None:
            raise Forbidden(f"host {host} has no work for project {project_id} here", code="images.other_project")
        return ProjectView(project_id), named

    def _boots(self, view: ServiceView, named: frozenset[str], image_id: str) -> bool:
        disks = (self._images.get(view, disk) for disk in sorted(named))
        return any(disk is not None and image_id in map(disk.properties.get, BOOT_IMAGE_PROPERTIES) for disk in disks)


def image_routes(rule: str, images_of: Callable[[S], HostImages]) -> list[Route[S]]:
    """The routes that read images: list, show and download."""

    def list_images(request: Request[S], host: str) -> Response:
        properties = {name: value for name, value in request.query.pairs if name != "project"}
        found = images_of(request.service).find(host, _project(request), properties)
        return Response(body={"images": [msgspec.to_builtins(image) for image in found]})

    def show_image(request: Request[S], host: str, image_id: str) -> Response:
        image = images_of(request.service).get(host, _project(request), image_id)
        return Response(body={"image": msgspec.to_builtins(image)})

    def download_image(request: Request[S], host: str, image_id: str) -> Response:
        with ExitStack() as opened:
            chunks = opened.enter_context(images_of(request.service).open(host, _project(request), image_id))
            return Response(stream=_close_after(chunks, opened.pop_all()), content_type=_BINARY)

    path = "/agent/v1/hosts/{host}/images"
    return [
        agent_route("GET", path, list_images, rule),
        agent_route("GET", path + "/{image_id}", show_image, rule),
        agent_route("GET", path + "/{image_id}/file", download_image, rule),
    ]


def read_chunks(request: Request[S]) -> Iterator[bytes]:
    return iter(lambda: request.stream.read(CHUNK_BYTES), b"")


def _project(request: Request[S]) -> str:
    return request.query.first("project") or ""


def _close_after(chunks: Iterator[bytes], opened: ExitStack) -> Iterator[bytes]:
    with opened:
        yield from chunks


class HostImageSource:
    """The `ImageSource` of a host's agent. It asks each of `services` until one has work for the project.

    If none has (because os_acc was called for a server that they do not know), it asks for public bitstreams.
    """

    def __init__(self, host: str, services: Sequence[ServiceClient]) -> None:
        self._path = f"/agent/v1/hosts/{quote(host, safe='')}/images"
        self._services = services

    def find(self, view: ServiceView, properties: Mapping[str, str]) -> list[ImageRecord]:
        for http, project_id in self._services_to_ask(view):
            params = [("project", project_id), *properties.items()]
            with _suppress_refusals():
                return [_decode_record(row) for row in http.get(self._path, params=params)["images"]]
        return []

    def get(self, view: ServiceView, image_id: str) -> ImageRecord | None:
        path = f"{self._path}/{quote(image_id, safe='')}"
        for http, project_id in self._services_to_ask(view):
            with _suppress_refusals():
                return _decode_record(http.get(path, params={"project": project_id})["image"])
        return None

    @contextmanager
    def open(self, view: ServiceView, image_id: str) -> Iterator[Iterator[bytes]]:
        path = f"{self._path}/{quote(image_id, safe='')}/file"
        with ExitStack() as opened:
            chunks = None
            for http, project_id in self._services_to_ask(view):
                with _suppress_refusals():
                    chunks = opened.enter_context(http.download(f"{path}?{urlencode({'project': project_id})}"))
                    break
            if chunks is None:
                raise NotFound(f"there is no image {image_id} for this host", code="images.not_found")
            yield chunks

    def _services_to_ask(self, view: ServiceView) -> Iterator[tuple[ServiceClient, str]]:
        """The (service, project id) pairs to ask, in order; with an empty project, a service returns public
        bitstreams.
        """
        if project_id := _project_of(view):
            yield from ((http, project_id) for http in self._services)
        yield from ((http, "") for http in self._services)


class DiskImageUploads:
    """Uploads images of disks that jobs of `host` order. `http` connects to the compute service."""

    def __init__(self, host: str, http: ServiceClient) -> None:
        self._path = f"/agent/v1/hosts/{quote(host, safe='')}/images"
        self._http = http

    def upload_disk_image(
        self,
        image_id: str,
        *,
        disk_format: str,
        properties: Mapping[str, str],
        size_bytes: int,
        chunks: Iterator[bytes],
    ) -> None:
        """Upload the data of an ordered image, with the host's description of the disk."""
        disk = json.dumps({"disk_format": disk_format, "properties": dict(properties)})
        headers = {"content-length": str(size_bytes), DISK_HEADER: disk}
        self._http.upload("PUT", f"{self._path}/{quote(image_id, safe='')}/file", chunks, _BINARY, headers)

    def withdraw_disk_image(self, image_id: str) -> None:
        """Report that the image could not be created. Ignores a missing image."""
        self._http.request_raw("DELETE", f"{self._path}/{quote(image_id, safe='')}", accept=(404,))


@contextmanager
def _suppress_refusals() -> Iterator[None]:
    """Suppress the errors of a service that has no such image for this host."""
    try:
        yield
    except NotFound:
        return
    except RemoteError as error:
        if error.status != 403:
            raise


def _project_of(view: ServiceView) -> str:
    match view:
        case ProjectView(project_id) | OwnerView(project_id):
            return project_id
        case PublicView():
            return ""


def _decode_record(row: Mapping[str, Json]) -> ImageRecord:
    try:
        return msgspec.convert(row, ImageRecord)
    except msgspec.ValidationError as error:
        raise Invalid(f"the record of an image cannot be read: {error}") from error
