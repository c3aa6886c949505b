"""Errors of attaching and releasing accelerators.

`os_acc.exception` has a class for each code, for the client's side of the socket.
"""

from collections.abc import Sequence

from moorage.core.errors import Conflict, Invalid, MoorageError, NotFound, Unavailable

#: Code of errors for requests that Cyborg does not check and answers with 500 (see `AcceleratorOptions.legacy_500`).
UNCHECKED = "accelerator.unchecked_by_the_peer"


class BadRequest(Invalid):
    """The parameters of a call are wrong on this host, independent of its current state."""

    code = "accelerator.bad_request"


class NoCapacity(Conflict):
    """Fewer handles are free than requested; another host may have enough."""

    code = "accelerator.no_capacity"


class AlreadyPlugged(Conflict):
    """The instance holds accelerators for another request."""

    code = "accelerator.already_plugged"


class ConflictingBitstreams(Conflict):
    """A region would need two bitstreams: two groups request different ones, or the region is in use."""

    code = "accelerator.conflicting_bitstreams"


class BitstreamNotFound(NotFound):
    code = "accelerator.bitstream_not_found"


class MultipleBitstreams(Conflict):
    """`images`: the ids of the images that fit."""

    code = "accelerator.multiple_bitstreams"

    def __init__(self, message: str, *, images: Sequence[str]) -> None:
        super().__init__(message, images=list(images))
        self.images = images


class ChecksumMismatch(Conflict):
    code = "accelerator.checksum_mismatch"


class SignatureMissing(Conflict):
    """A signature is required, but the image has none."""

    code = "accelerator.signature_missing"


class SignatureRejected(Conflict):
    """The signature does not match the data, or its key is unknown, expired or of another type, or the host has no
    keys.
    """

    code = "accelerator.signature_rejected"


class ProgramFailed(MoorageError):
    code = "accelerator.program_failed"


class PrepareFailed(ProgramFailed):
    """The handle could not be prepared for an instance, whether or not the region was programmed."""


class CleanFailed(MoorageError):
    """The handle is quarantined: it is not given out until an operator releases it."""

    code = "accelerator.clean_failed"


class NotReady(Unavailable):
    """The agent is still discovering devices or publishing their providers."""

    code = "accelerator.not_ready"
