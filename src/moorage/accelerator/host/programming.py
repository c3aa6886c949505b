"""Regions: finding the bitstream, fetching and verifying it, loading it, and mending what was left half-way.

Each region is worked on by one thread at a time. What may be loaded while somebody holds a handle is decided in
`attach_state`; which image fits, in `bitstream`.
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
from moorage.images.base import DigestMismatch, ImageRecord, ImageSource
from moorage.images.cache import CachedFile, DigestCache
from moorage.images.views import ServiceView

log = logging.getLogger(__name__)


class KeyedLocks:
    """One lock per name, for as long as somebody wants it."""

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
    """An image that fits a region, and what the region will carry once it is loaded."""

    image: ImageRecord
    view: ServiceView  #: in which the image was found, and is fetched
    bitstream: Bitstream
    signed: ImageSignature | None = None  #: its signature, where one is to be verified


class RegionProgrammer:
    """`changed` is called after each change of what a region carries: its traits are no longer the same."""

    def __init__(
        self,
        registry: DeviceRegistry,
        checkpoint: Checkpoint,
        images: ImageSource,
        cache: DigestCache,
        changed: Callable[[], None],
        signatures: SignatureVerifier,
    ) -> None:
        self._registry = registry
        self._checkpoint = checkpoint
        self._images = images
        self._cache = cache
        self._region_changed = changed
        self._signatures = signatures
        self._locks = KeyedLocks()
        self._last_logged: dict[str, str] = {}  #: by region, the last reason why it could not be mended

    def image_hints(self, image_id: str, project_id: str) -> Mapping[str, str]:
        """The properties of the image of a server of that project; none where it is gone."""
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
        """The one image to load. Raises `BitstreamNotFound`, `MultipleBitstreams`, `ChecksumMismatch`; where a
        signature is demanded or there, `SignatureMissing`, `SignatureRejected`.
        """
        if not unit.deployable.programmable:
            raise BadRequest(
                f"{unit.deployable.name} ({unit.device.model}) cannot be programmed, {wanted} is asked for"
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
        """Have `deployable` carry the chosen bitstream; nothing is done where it does already.

        `by`: who ordered it, where that is no instance.
        """
        with self._locks.held(deployable):
            self._verify_signature(chosen)
            region = self._settled_region(deployable)
            loaded = region.bitstream.digest if region.bitstream else ""
            if region.state is RegionState.IDLE and loaded == chosen.bitstream.digest:
                self._update_voucher(deployable, region, chosen.bitstream)
                return
            # Verified before the first step: a bad image must not cost the region what it carries.
            with self._fetched_data(chosen) as file:
                self._program(deployable, chosen.bitstream, file, instance_uuid, by)

    def load_blank(self, deployable: str, by: Requester, only: ProgramRequest) -> str | None:
        """Have `deployable` carry the vendor's blank; nothing is done where it does already, or where it carries something
        else than `only`, where that is not nothing. The id of the image that it carries then.
        """
        with self._locks.held(deployable):
            region = self._settled_region(deployable)
            if only and not carries_bitstream(region.bitstream, only):
                return region.bitstream.image_id or None if region.bitstream else None
            if region.state is not RegionState.IDLE or region.bitstream is not None:
                self._program(deployable, None, None, "", by)
            return None

    def _verify_signature(self, chosen: ChosenBitstream) -> None:
        """The signature, also of what the region carries already: it may have been loaded when nobody asked for one."""
        if chosen.signed is not None and not self._signatures.is_verified(chosen.signed):
            with self._fetched_data(chosen) as file:
                self._signatures.verify_data(chosen.signed, file.file)

    def _update_voucher(self, deployable: str, region: h.RegionRecord, chosen: Bitstream) -> None:
        """What is loaded already may have been signed since."""
        there = region.bitstream
        if there is not None and there.image_id == chosen.image_id and there.voucher is not chosen.voucher:
            self._checkpoint.step(partial(h.with_voucher, deployable=deployable, unsigned=chosen.voucher))
            self._region_changed()

    def blank_if_needed(self, deployable: str) -> None:
        """Load the blank where nobody holds a handle and the region is lost, or carries what is not for everybody."""
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
        """Once for each reason: it is tried in every round, and some cards cannot be emptied at all."""
        if self._last_logged.get(deployable) != reason:
            self._last_logged[deployable] = reason
            log.error("region cannot be mended", extra={"region": deployable, "reason": reason})

    def recover_region(self, deployable: str) -> None:
        """At a start, or when a card is back: believe the device where it can tell, else mend the region."""
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
        """The region's record. We hold its lock: one that says ``programming`` was left so by a crash or a full disk."""
        region = self._checkpoint.state.region(deployable)
        if region.state is RegionState.PROGRAMMING:
            self._record_interrupted(deployable, region.wanted, "it was cut short")
            self._region_changed()
        return self._checkpoint.state.region(deployable)

    @contextmanager
    def _fetched_data(self, chosen: ChosenBitstream) -> Iterator[CachedFile]:
        image = chosen.image
        # An exception of the body must not be taken for one of the fetch: hence enter and exit by hand.
        context = self._cache.open(image, self._images, chosen.view)
        try:
            file = context.__enter__()
        except (DigestMismatch, Invalid) as error:
            raise ChecksumMismatch(error.message) from error
        except TooLarge as error:
            raise BadRequest(error.message) from error
        except NotFound as error:
            raise BitstreamNotFound(f"image {image.id} ({image.name}) has no data any more") from error
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
            # Whoever is woken comes back to mend the region: woken for nothing, it would never rest.
            after = self._checkpoint.state.region(deployable)
            if (after.state, after.bitstream) != (before.state, before.bitstream):
                self._region_changed()
            raise ProgramFailed(f"region {deployable} could not be programmed: {error.message}") from error
        self._checkpoint.step(partial(h.end_programming, deployable=deployable, loaded=wanted))
        self._region_changed()

    def _record_interrupted(self, deployable: str, wanted: Bitstream | None, reason: str) -> None:
        """Programming stopped without a good end, for `reason`: what does the device say?"""
        found = self._registry.identify(deployable)
        mending = reason if wanted is None else ""
        if found.state is not RegionState.IDLE:
            self._checkpoint.step(partial(h.mark_region_unknown, deployable=deployable, failed=mending), reason)
        elif wanted is not None and found.bitstream is not None and found.bitstream.digest == wanted.digest:
            self._checkpoint.step(partial(h.end_programming, deployable=deployable, loaded=wanted), reason)
        else:
            carried = partial(h.end_programming, deployable=deployable, loaded=found.bitstream, failed=mending)
            self._checkpoint.step(carried, reason)
