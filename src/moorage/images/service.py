"""Use cases of the Image API v2, with the permissions of projects on images."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

from moorage.core.caller import Caller
from moorage.core.clock import Clock
from moorage.core.errors import Conflict, Forbidden, Invalid, NotFound, TooLarge
from moorage.core.ids import Ids
from moorage.images import document, query
from moorage.images.directory import ImageDirectory
from moorage.images.model import TRANSITIONS, Image, ImageStatus, Member, MemberStatus, Visibility
from moorage.images.query import ImageListRequest

#: Whether the policy allows the caller a rule.
Allowed = Callable[[str], bool]

#: Checks a document against the schema; raises `Invalid`.
Check = Callable[[Mapping[str, object]], None]

#: Glance's default limits per image. Each list of images reads all tags and members.
MAX_TAGS, MAX_MEMBERS = 128, 128


@dataclass(frozen=True)
class ImageService:
    directory: ImageDirectory
    clock: Clock
    ids: Ids

    def create_image(self, caller: Caller, wanted: Mapping[str, Any], allowed: Allowed) -> Image:
        """`wanted` matches the schema. Raises `Forbidden` for attributes that the caller may not set, `Conflict` for
        an id in use.
        """
        document.refuse_read_only(wanted)
        now = self.clock.now()
        settings = document.image_arguments(wanted)
        settings["owner"] = settings["owner"] or caller.project_id or None
        image = Image(id=(wanted.get("id") or self.ids.uuid()).lower(), created_at=now, updated_at=now, **settings)
        if not caller.is_admin and image.owner != (caller.project_id or None):
            raise Forbidden(f"You are not permitted to create images owned by '{image.owner}'.")
        _check_visibility_allowed(image, allowed)
        self.directory.create(image)
        return image

    def list_images(self, caller: Caller, listing: ImageListRequest) -> tuple[Sequence[Image], bool]:
        """(one page, whether there are more)."""
        return query.list_page(self.directory.images(), listing, caller)

    def get_image(self, caller: Caller, image_id: str) -> Image:
        image = self.directory.image(image_id)
        return _check_visible(image, image_id, caller)

    def update_image(
        self,
        caller: Caller,
        image_id: str,
        operations: Sequence[document.PatchOperation],
        check: Check,
        allowed: Allowed,
    ) -> Image:
        """Applies all operations or none."""

        def decide(image: Image) -> Image:
            _check_owned(image, caller, "modify")
            shown = document.image_document(image)
            wanted = document.apply_patch(shown, operations)
            check(wanted)
            if wanted == shown:
                return image
            changed = replace(image, updated_at=self.clock.now(), **document.image_arguments(wanted))
            if changed.owner != image.owner and not caller.is_admin:
                raise Forbidden("You are not permitted to modify 'owner' on this image.")
            if changed.visibility != image.visibility:
                _check_visibility_allowed(changed, allowed)
            formats = (image.disk_format, image.container_format)
            if formats != (changed.disk_format, changed.container_format) and image.status != ImageStatus.QUEUED:
                raise Forbidden("Attribute 'disk_format' and 'container_format' are fixed once there is data.")
            return changed

        return self.directory.change(image_id, decide)

    def add_tag(self, caller: Caller, image_id: str, tag: str) -> None:
        if len(tag) > 255:
            raise Invalid("a tag may have at most 255 characters")

        def decide(image: Image) -> Image:
            changed = self._with_tags(image, caller, image.tags | {tag})
            if len(changed.tags) > MAX_TAGS:
                raise TooLarge(f"an image may have at most {MAX_TAGS} tags")
            return changed

        self.directory.change(image_id, decide)

    def remove_tag(self, caller: Caller, image_id: str, tag: str) -> None:
        def decide(image: Image) -> Image:
            _check_owned(image, caller, "modify")
            if tag not in image.tags:
                raise NotFound("The resource could not be found.")
            return self._with_tags(image, caller, image.tags - {tag})

        self.directory.change(image_id, decide)

    def delete_image(self, caller: Caller, image_id: str) -> None:
        def check(image: Image) -> None:
            _check_owned(image, caller, "delete")
            if image.protected:
                raise Forbidden(f"Image {image_id} is protected and cannot be deleted.", code="images.protected")

        self.directory.remove(image_id, check)

    def upload_data(self, caller: Caller, image_id: str, chunks: Iterable[bytes], size_bytes: int | None) -> None:
        def check(image: Image) -> None:
            _check_owned(image, caller, "modify")
            missing = [
                name
                for name, value in (("disk_format", image.disk_format), ("container_format", image.container_format))
                if not value
            ]
            if missing:
                raise Invalid(f"Properties {', '.join(missing)} must be set prior to saving data.")
            if image.status not in (ImageStatus.QUEUED, ImageStatus.SAVING):
                raise Conflict(f"Image status transition from {image.status} to saving is not allowed")

        self.directory.upload(image_id, chunks, size_bytes=size_bytes, check=check)

    def open_data(self, caller: Caller, image_id: str) -> tuple[Image, BinaryIO]:
        """The image and its data, open for reading. Raises `NotFound` (code ``images.no_data``) before the upload."""
        image = self.get_image(caller, image_id)
        if image.status == ImageStatus.DEACTIVATED and not caller.is_admin:
            raise Forbidden("The requested image has been deactivated. Image data download is forbidden.")
        return image, self.directory.data(image_id)

    def set_active(self, caller: Caller, image_id: str, *, active: bool) -> None:
        wanted = ImageStatus.ACTIVE if active else ImageStatus.DEACTIVATED

        def decide(image: Image) -> Image:
            _check_owned(image, caller, "reactivate" if active else "deactivate")
            if image.status == wanted:
                return image
            if image.status not in (ImageStatus.ACTIVE, ImageStatus.DEACTIVATED):
                raise Forbidden(f"Not allowed to {'re' if active else 'de'}activate image in status '{image.status}'")
            status = TRANSITIONS.check_transition(image.status, wanted)
            return replace(image, status=status, updated_at=self.clock.now())

        self.directory.change(image_id, decide)

    def list_members(self, caller: Caller, image_id: str) -> tuple[Image, Sequence[str]]:
        """Returns (the image, its members in order). A member sees only itself."""
        image = _check_shared(self.get_image(caller, image_id))
        sees_all = caller.is_admin or caller.is_service or image.owner == caller.project_id
        return image, sorted(image.members if sees_all else {caller.project_id} & image.members.keys())

    def add_member(self, caller: Caller, image_id: str, project_id: str) -> Image:
        def decide(image: Image) -> Image:
            _check_owned(_check_shared(image), caller, "share")
            if project_id in image.members:
                raise Conflict(f"Project {project_id} is a member of image {image_id} already.")
            if len(image.members) >= MAX_MEMBERS:
                raise TooLarge(f"an image may have at most {MAX_MEMBERS} members; remove one first")
            now = self.clock.now()
            added = Member(MemberStatus.PENDING, now, now)
            return replace(image, members={**image.members, project_id: added})

        return self.directory.change(image_id, decide)

    def answer_sharing(self, caller: Caller, image_id: str, project_id: str, status: MemberStatus) -> Image:
        """Accept or reject a shared image. Only the member may do so, not the owner."""

        def decide(image: Image) -> Image:
            member = _member(_check_visible(image, image_id, caller), project_id)
            if not caller.is_admin and caller.project_id != project_id:
                raise Forbidden("Only the member itself may accept or reject the image.")
            changed = replace(member, status=status, updated_at=self.clock.now())
            return replace(image, members={**image.members, project_id: changed})

        return self.directory.change(image_id, decide)

    def remove_member(self, caller: Caller, image_id: str, project_id: str) -> None:
        def decide(image: Image) -> Image:
            _check_owned(_check_shared(image), caller, "share")
            _member(image, project_id)
            left = {project: member for project, member in image.members.items() if project != project_id}
            return replace(image, members=left)

        self.directory.change(image_id, decide)

    def _with_tags(self, image: Image, caller: Caller, tags: frozenset[str]) -> Image:
        _check_owned(image, caller, "modify")
        return replace(image, tags=tags, updated_at=self.clock.now())


def _check_visible(image: Image | None, image_id: str, caller: Caller) -> Image:
    """Raises `NotFound` for an image that the caller may not see."""
    if image is None or not query.may_see(image, caller):
        raise NotFound(f"No image found with ID {image_id}", code="images.not_found")
    return image


def _check_owned(image: Image, caller: Caller, verb: str) -> None:
    _check_visible(image, image.id, caller)
    if not caller.is_admin and image.owner != caller.project_id:
        raise Forbidden(f"You are not permitted to {verb} this image.", code="images.not_owner")


def _check_shared(image: Image) -> Image:
    if image.visibility is not Visibility.SHARED:
        raise Forbidden("Only shared images have members.", code="images.not_shared")
    return image


def _member(image: Image, project_id: str) -> Member:
    if project_id not in image.members:
        raise NotFound(f"Project {project_id} is not a member of image {image.id}.")
    return image.members[project_id]


def _check_visibility_allowed(image: Image, allowed: Allowed) -> None:
    rule = {Visibility.PUBLIC: "publicize_image", Visibility.COMMUNITY: "communitize_image"}.get(image.visibility)
    if rule is not None and not allowed(rule):
        raise Forbidden(f"You are not authorized to complete {rule} action.", code="images.visibility")
