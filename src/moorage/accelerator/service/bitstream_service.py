"""Is there a bitstream? Asked before somebody relies on it; a host that is to load one looks again, and verifies."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from moorage.accelerator.host.bitstream_lookup import find_image
from moorage.accelerator.model.bitstream import BitstreamTarget
from moorage.accelerator.model.errors import BitstreamNotFound, ChecksumMismatch, MultipleBitstreams
from moorage.accelerator.model.naming import TraitKind, comparable, parse_trait
from moorage.accelerator.model.profile import ProgramRequest
from moorage.accelerator.model.rows import REGION_TYPE
from moorage.accelerator.store import accelerator_store
from moorage.core.errors import MoorageError, NotFound
from moorage.db.prepared_transactions import Database
from moorage.images.base import ImageRecord, ImageSource

#: By which images tell for which of the cards with a region of their type they are: what hosts alone can judge.
_OF_CARDS = ("vendor", "board", "shell_id")


@dataclass(frozen=True, slots=True)
class Loadable:
    """`image` fits regions of that type. One of several, where the card decides which of them."""

    image: ImageRecord
    region_type: str


class BitstreamService:
    """`images`: None where the service cannot ask for any."""

    def __init__(self, database: Database, images: ImageSource | None) -> None:
        self._database = database
        self._images = images

    def loadable(self, wanted: ProgramRequest, project_id: str, traits: Collection[str]) -> list[Loadable]:
        """By type of region, of those that hosts report and that have all of `traits`; traits of other kinds do not count.

        Raises `BitstreamNotFound`, `MultipleBitstreams`, `ChecksumMismatch` where there is none.
        """
        if self._images is None:
            raise NotFound("this accelerator service knows of no images")
        found: list[Loadable] = []
        refusals: list[MoorageError] = []
        types = self._region_types(traits)
        for region_type in types:
            try:
                image = self._image(self._images, wanted, BitstreamTarget(region_type, project_id))
            except (BitstreamNotFound, MultipleBitstreams, ChecksumMismatch) as error:
                refusals.append(error)
            else:
                found.append(Loadable(image, region_type))
        if found:
            return found
        if not refusals:
            raise BitstreamNotFound(f"no host has a region that could carry {wanted}")
        # Where one type has too many images, that there is none for the others is beside the point.
        raise min(refusals, key=lambda error: isinstance(error, BitstreamNotFound))

    def _image(self, images: ImageSource, wanted: ProgramRequest, target: BitstreamTarget) -> ImageRecord:
        try:
            return find_image(images, wanted, target)
        except MultipleBitstreams as error:
            several = _several(images, target, error)
            if len({tuple(one.properties.get(name) for name in _OF_CARDS) for one in several}) == 1:
                raise
            return several[0]

    def _region_types(self, traits: Collection[str]) -> Sequence[str]:
        parsed = (parse_trait(trait) for trait in traits)
        wanted = {one.id for one in parsed if one is not None and one.kind is TraitKind.REGION}
        with self._database.read() as connection:
            parts = accelerator_store.deployables(connection)
        there = sorted({value for part in parts for key, value in part.attributes if key == REGION_TYPE})
        return [one for one in there if wanted <= {comparable(one)}]


def _several(images: ImageSource, target: BitstreamTarget, error: MultipleBitstreams) -> list[ImageRecord]:
    return [image for one in error.images if (image := images.get(target.view, one)) is not None]
