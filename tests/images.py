"""Images that tests put into an image service, as its administrator and over its API."""

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
    """The id. `data` None: it stays queued. Raises what the service refuses."""
    base = {"id": image_id, "name": name, "owner": owner, "visibility": visibility, "tags": list(tags)}
    formats = {"disk_format": "raw", "container_format": "bare"}
    http.request("POST", "/v2/images", json={**(properties or {}), **base, **formats})
    if data is not None:
        length = {"content-length": str(len(data))}
        http.upload("PUT", f"/v2/images/{image_id}/file", iter((data,)), "application/octet-stream", length)
    return image_id
