"""Programs regions: finds, fetches, verifies and loads bitstreams, and repairs regions after failures.

One thread at a time works on a region. `model.attach_state` decides whether a region in use may be programmed;
`model.bitstream` decides which image fits.
Spec: docs/evidence/specs/accelerator-attach.md
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from moorage.accelerator.drivers.base import DriverError
from moorage.accelerator.host.bitstream_lookup import find_image
from moorage.accelerator.host.checkpoint import Checkpoint
from moorage.accelerator.host.device_registry import DeviceRegistry, ManagedDeployable
from moorage.accelerator.host.signatures import ImageSignature, SignatureVerifier
from moorage.accelerator.model import attach_state as h
from moorage.accelerator.model.bitstream import BitstreamTarget, bitstream_of, carries_bitstream
from moorage.accelerator.model.device_history import Requester
from moorage.accelerator.model.devices import Bitstream, RegionState
from moorage.accelerator.model.errors import (
    BadRequest,
    BitstreamNotFound,
    ChecksumMismatch,
    ConflictingBitstreams,
    ProgramFailed,
)
from moorage.accelerator.model.profile import ProgramRequest
from moorage.core.errors import Invalid, NotFound, TooLarge
from moorage.images.base import DigestMismatch, ImageRecord, ImageSource, ServiceView
from moorage.images.cache import CachedFile, DigestCache

log = logging.getLogger(__name__)


class KeyedLocks:
    """One lock per name; a lock exists only while a thread holds it or waits for it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[str, tuple[threading.Lock, int]] = {}

    @contextmanager
    def held(self, name: str) -> Iterator[None]:
        with self._guard:
            lock, users = self._locks.get(name, (threading.Lock(), 0))
            self._locks[name] = (lock, users + 1)
        try:
            with lock:
                yield
        finally:
            with self._guard:
                users = self._locks[name][1] - 1
                if users:
                    self._locks[name] = (lock, users)
                else:
                    del self._locks[name]


@dataclass(frozen=True, slots=True)
class ChosenBitstream:
    """An image that fits a region, and the bitstream that the region has when the image is loaded."""

    image: ImageRecord
    view: ServiceView  #: the view in which the image was found, and in which it is fetched
    bitstream: Bitstream
    signed: ImageSignature | None = None  #: the signature to verify, if any


@dataclass(frozen=True)
class BitstreamSource:
    """Where the bitstreams of a host come from."""

    images: ImageSource
    cache: DigestCache
    signatures: SignatureVerifier


class RegionProgrammer:
    """`changed` is called whenever a region's content changes, and so its traits."""

    def __init__(
        self,
        registry: DeviceRegistry,
        checkpoint: Checkpoint,
        bitstreams: BitstreamSource,
        changed: Callable[[], None],
    ) -> None:
        self._registry = registry
        self._checkpoint = checkpoint
        self._images = bitstreams.images
        self._cache = bitstreams.cache
        self._signatures = bitstreams.signatures
        self._region_changed = changed
        self._locks = KeyedLocks()
        self._last_logged: dict[str, str] = {}  #: by region, the last reason that its repair failed

    def image_hints(self, image_id: str, project_id: str) -> Mapping[str, str]:
        """The properties of a server's own image, read in the view of its project; empty if the image is gone."""
        image = self._images.get(BitstreamTarget("", project_id).view, image_id)
        return {} if image is None else image.properties

    def find_bitstream(
        self,
        wanted: ProgramRequest,
        unit: ManagedDeployable,
        project_id: str,
        *,
        signed: bool = False,
        only_public: bool = False,
    ) -> ChosenBitstream:
        """Find the one image to load. Raises `BitstreamNotFound`, `MultipleBitstreams`, `ChecksumMismatch`, and
        `SignatureMissing` or `SignatureRejected` if a signature is required or present.
        """
        if not unit.deployable.programmable:
            raise BadRequest(
                f"{unit.deployable.name} ({unit.device.model}) cannot be programmed, but {wanted} is requested"
            )
        part = unit.deployable
        target = BitstreamTarget(part.region_type, project_id, unit.device, part.name, only_public)
        image = find_image(self._images, wanted, target)
        found = self._signatures.check_image(image, demanded=signed)
        bitstream = replace(bitstream_of(image), voucher=self._signatures.voucher_of(found))
        return ChosenBitstream(image, target.view, bitstream, found)

    def load_bitstream(
        self, deployable: str, chosen: ChosenBitstream, instance_uuid: str, by: Requester | None = None
    ) -> None:
        """Loads the chosen bitstream into `deployable`, unless it is loaded already.

        `by`: the requester, if it is not for an instance.
        """
        with self._locks.held(deployable):
            self._verify_signature(chosen)
            region = self._settled_region(deployable)
            loaded = region.bitstream.digest if region.bitstream else ""
            if region.state is RegionState.IDLE and loaded == chosen.bitstream.digest:
                self._update_voucher(deployable, region, chosen.bitstream)
                return
            # Verify before the first step, so that the region keeps its present content if the image is bad.
            with self._fetched_data(chosen) as file:
                self._program(deployable, chosen.bitstream, file, instance_uuid, by)

    def load_blank(self, deployable: str, by: Requester, only: ProgramRequest) -> str | None:
        """Loads the vendor's blank into `deployable`, unless it is blank already, or `only` is set and the region has
        other content. Returns the id of the region's image afterwards, or None.
        """
        with self._locks.held(deployable):
            region = self._settled_region(deployable)
            if only and not carries_bitstream(region.bitstream, only):
                return region.bitstream.image_id or None if region.bitstream else None
            if region.state is not RegionState.IDLE or region.bitstream is not None:
                self._program(deployable, None, None, "", by)
            return None

    def _verify_signature(self, chosen: ChosenBitstream) -> None:
        """Verifies the signature. A loaded bitstream needs that too: perhaps no signature was required when it was
        loaded.
        """
        if chosen.signed is not None and not self._signatures.is_verified(chosen.signed):
            with self._fetched_data(chosen) as file:
                self._signatures.verify_data(chosen.signed, file.file)

    def _update_voucher(self, deployable: str, region: h.RegionRecord, chosen: Bitstream) -> None:
        """Records the voucher of the chosen image, which may have been signed since the bitstream was loaded."""
        there = region.bitstream
        if there is not None and there.image_id == chosen.image_id and there.voucher is not chosen.voucher:
            self._checkpoint.step(partial(h.with_voucher, deployable=deployable, unsigned=chosen.voucher))
            self._region_changed()

    def blank_if_needed(self, deployable: str) -> None:
        """Load the blank if no handle is in use and the region's content is unknown or private."""
        with self._locks.held(deployable):
            region = self._settled_region(deployable)
            private = region.bitstream is not None and not region.bitstream.public
            if region.state is not RegionState.UNKNOWN and not private:
                return
            try:
                self._program(deployable, None, None, "")
            except ConflictingBitstreams:
                log.debug("region stays as it is while it is in use", extra={"region": deployable})
            except (ProgramFailed, BadRequest) as error:  # BadRequest: its card is gone
                self._log_once(deployable, error.message)
            else:
                self._last_logged.pop(deployable, None)

    def _log_once(self, deployable: str, reason: str) -> None:
        """Logs each reason once, because every round tries the repair, and some cards cannot be blanked at all."""
        if self._last_logged.get(deployable) != reason:
            self._last_logged[deployable] = reason
            log.error("region cannot be repaired", extra={"region": deployable, "reason": reason})

    def recover_region(self, deployable: str) -> None:
        """Records the content that the device reports for the region, or repairs the region if the content is unknown.
        Call it at the start, and when a card returns.
        """
        with self._locks.held(deployable):
            if self._settled_region(deployable).state is RegionState.IDLE:
                found = self._registry.identify(deployable)
                self._checkpoint.step(
                    partial(h.adopt_region_content, deployable=deployable, state=found.state, bitstream=found.bitstream)
                )
        unsigned = self._signatures.voucher_of(None)
        self._checkpoint.step(partial(h.with_voucher, deployable=deployable, unsigned=unsigned))
        self.blank_if_needed(deployable)

    def _settled_region(self, deployable: str) -> h.RegionRecord:
        """The region's record. The caller holds the region's lock, so ``programming`` in the record comes from a crash
        or a full disk; then the end of that programming is recorded first.
        """
        region = self._checkpoint.state.region(deployable)
        if region.state is RegionState.PROGRAMMING:
            self._record_interrupted(deployable, region.wanted, "it was interrupted")
            self._region_changed()
        return self._checkpoint.state.region(deployable)

    @contextmanager
    def _fetched_data(self, chosen: ChosenBitstream) -> Iterator[CachedFile]:
        image = chosen.image
        # Entered and exited explicitly, so that errors of the body are not translated as errors of the fetch.
        context = self._cache.open(image, self._images, chosen.view)
        try:
            file = context.__enter__()
        except (DigestMismatch, Invalid) as error:
            raise ChecksumMismatch(error.message) from error
        except TooLarge as error:
            raise BadRequest(error.message) from error
        except NotFound as error:
            raise BitstreamNotFound(f"image {image.id} ({image.name}) no longer has data") from error
        try:
            yield file
        finally:
            context.__exit__(None, None, None)

    def _program(
        self,
        deployable: str,
        wanted: Bitstream | None,
        file: CachedFile | None,
        instance_uuid: str,
        by: Requester | None = None,
    ) -> None:
        driver = self._registry.deployable(deployable).driver
        before = self._checkpoint.state.region(deployable)
        self._checkpoint.step(
            partial(h.begin_programming, deployable=deployable, wanted=wanted, for_instance=instance_uuid, by=by)
        )
        log.info("programming", extra={"region": deployable, "image": wanted.image_id if wanted else "blank"})
        try:
            driver.program(deployable, wanted, file.file if file else None)
        except DriverError as error:
            self._record_interrupted(deployable, wanted, error.message)
            # `_region_changed` causes another repair of the region. Without a change, that would loop forever.
            after = self._checkpoint.state.region(deployable)
            if (after.state, after.bitstream) != (before.state, before.bitstream):
                self._region_changed()
            raise ProgramFailed(f"region {deployable} could not be programmed: {error.message}") from error
        self._checkpoint.step(partial(h.end_programming, deployable=deployable, loaded=wanted))
        self._region_changed()

    def _record_interrupted(self, deployable: str, wanted: Bitstream | None, reason: str) -> None:
        """Records the end of a failed or interrupted programming, with the content that the device reports now."""
        found = self._registry.identify(deployable)
        blank_failure = reason if wanted is None else ""
        if found.state is not RegionState.IDLE:
            self._checkpoint.step(partial(h.mark_region_unknown, deployable=deployable, failed=blank_failure), reason)
        elif wanted is not None and found.bitstream is not None and found.bitstream.digest == wanted.digest:
            self._checkpoint.step(partial(h.end_programming, deployable=deployable, loaded=wanted), reason)
        else:
            carried = partial(h.end_programming, deployable=deployable, loaded=found.bitstream, failed=blank_failure)
            self._checkpoint.step(carried, reason)
