"""What can go wrong while an accelerator is attached or released.

Each has a code that `os_acc.exception` turns back into its own class on the other side of the socket.
"""

from collections.abc import Sequence

from moorage.core.errors import Conflict, Invalid, MoorageError, NotFound, Unavailable

#: Of refusals where the peer checks nothing and answers 500 (`AcceleratorOptions.legacy_500`).
UNCHECKED = "accelerator.unchecked_by_the_peer"


class BadRequest(Invalid):
    """The parameters of a call cannot be right on this host, whatever its state."""

    code = "accelerator.bad_request"


class NoCapacity(Conflict):
    """Fewer handles are free than asked for: another host may have them."""

    code = "accelerator.no_capacity"


class AlreadyPlugged(Conflict):
    """The instance holds accelerators for another request."""

    code = "accelerator.already_plugged"


class ConflictingBitstreams(Conflict):
    """One region, two bitstreams: two groups want different ones, or somebody uses the region as it is."""

    code = "accelerator.conflicting_bitstreams"


class BitstreamNotFound(NotFound):
    code = "accelerator.bitstream_not_found"


class MultipleBitstreams(Conflict):
    """`images` are the ids of those that fit."""

    code = "accelerator.multiple_bitstreams"

    def __init__(self, message: str, *, images: Sequence[str]) -> None:
        super().__init__(message, images=list(images))
        self.images = images


class ChecksumMismatch(Conflict):
    code = "accelerator.checksum_mismatch"


class SignatureMissing(Conflict):
    """A signature is demanded, and the image has none."""

    code = "accelerator.signature_missing"


class SignatureRejected(Conflict):
    """Of other data, by another or unknown key, by one that has expired or is of another type; or no key is known."""

    code = "accelerator.signature_rejected"


class ProgramFailed(MoorageError):
    code = "accelerator.program_failed"


class PrepareFailed(ProgramFailed):
    """Programmed or not, the handle could not be made ready for an instance."""


class CleanFailed(MoorageError):
    """The handle is quarantined: it is not given to anybody until an operator releases it."""

    code = "accelerator.clean_failed"


class NotReady(Unavailable):
    """Devices are still being discovered or their providers published."""

    code = "accelerator.not_ready"
