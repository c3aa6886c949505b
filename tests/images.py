"""Creates images for tests in an image service, as its administrator and over its API."""

from collections.abc import Mapping

from moorage.wire.client import ServiceClient


def put_image(
    http: ServiceClient,
    image_id: str,
    name: str = "tiny",
    *,
    owner: str = "red",
    visibility: str = "public",
    data: bytes | None = b"tiny",
    properties: Mapping[str, str] | None = None,
    tags: tuple[str, ...] = (),
) -> str:
    """The image's id. If `data` is None, it stays queued. Raises the service's refusals."""
    base = {"id": image_id, "name": name, "owner": owner, "visibility": visibility, "tags": list(tags)}
    formats = {"disk_format": "raw", "container_format": "bare"}
    http.request("POST", "/v2/images", json={**(properties or {}), **base, **formats})
    if data is not None:
        length = {"content-length": str(len(data))}
        http.upload("PUT", f"/v2/images/{image_id}/file", iter((data,)), "application/octet-stream", length)
    return image_id
