"""The exceptions of os_acc. Each has the instance's uuid (empty for `initialize`) and whether a retry may help.

`retryable`: the same call may work later on this host. After `NoCapacity` and `ConflictingBitstreams`, it is also
worth asking the scheduler for another host.
"""

from typing import ClassVar


class OsAccException(Exception):
    """Base class; also raised for an unexpected failure of the agent."""

    code: ClassVar[str] = "accelerator.error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, instance_uuid: str = "") -> None:
        super().__init__(message, instance_uuid)  # both: a future may carry it through pickle
        self.message = message
        self.instance_uuid = instance_uuid

    def __str__(self) -> str:
        return f"{self.message} (instance {self.instance_uuid})" if self.instance_uuid else self.message


class CyborgAgentUnavailable(OsAccException):
    """The accelerator agent of this host cannot be contacted, or is still starting."""

    code = "accelerator.not_ready"
    retryable = True


class Timeout(OsAccException):
    """No answer in time. The agent continues; a repeated plug returns its result."""

    code = "accelerator.timeout"
    retryable = True


class BadRequest(OsAccException):
    """The parameters are wrong for this host."""

    code = "accelerator.bad_request"


class NoCapacity(OsAccException):
    """Not enough free handles."""

    code = "accelerator.no_capacity"
    retryable = True


class AlreadyPlugged(OsAccException):
    """The instance has accelerators for another request: unplug first."""

    code = "accelerator.already_plugged"


class ConflictingBitstreams(OsAccException):
    """A region would need two bitstreams at once."""

    code = "accelerator.conflicting_bitstreams"
    retryable = True


class BitstreamNotFound(OsAccException):
    """No image fits function, region type and device."""

    code = "accelerator.bitstream_not_found"


class MultipleBitstreams(OsAccException):
    """More than one image fits; the message names them."""

    code = "accelerator.multiple_bitstreams"


class ChecksumMismatch(OsAccException):
    """The data does not match the digest of the image; nothing was programmed."""

    code = "accelerator.checksum_mismatch"


class SignatureMissing(OsAccException):
    """A signature is required, but the image has none; nothing was programmed."""

    code = "accelerator.signature_missing"


class SignatureRejected(OsAccException):
    """The image's signature is invalid or cannot be verified on this host; nothing was programmed."""

    code = "accelerator.signature_rejected"


class ProgramFailed(OsAccException):
    """The device could not be programmed or prepared."""

    code = "accelerator.program_failed"
    retryable = True


class CleanFailed(OsAccException):
    """Released, but quarantined: the handle is not given out until an operator releases it."""

    code = "accelerator.clean_failed"


BY_CODE: dict[str, type[OsAccException]] = {
    kind.code: kind
    for kind in (
        CyborgAgentUnavailable,
        Timeout,
        BadRequest,
        NoCapacity,
        AlreadyPlugged,
        ConflictingBitstreams,
        BitstreamNotFound,
        MultipleBitstreams,
        ChecksumMismatch,
        SignatureMissing,
        SignatureRejected,
        ProgramFailed,
        CleanFailed,
    )
}
