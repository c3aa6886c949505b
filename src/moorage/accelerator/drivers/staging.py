"""A verified bitstream as a file of our own, for programs and kernels that want a path."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from moorage.accelerator.drivers.base import DriverError
from moorage.accelerator.model.devices import Bitstream

#: No FPGA of today takes more.
MAX_BITSTREAM_BYTES = 1 << 30


@contextmanager
def staged_bitstream(path: Path, bitstream: Bitstream, data: BinaryIO | None) -> Iterator[Path]:
    """`data` in `path` for as long as the body runs. What a kill leaves there, the next one for it takes away.

    Looked at while it is copied: data that is not what `bitstream` promises is a `DriverError`.
    """
    if data is None:
        raise DriverError(f"there is no data of image {bitstream.image_id or '(unnamed)'} to program with")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _copy_verified(data, file, bitstream)
        yield path
    finally:
        path.unlink(missing_ok=True)


def _copy_verified(data: BinaryIO, file: BinaryIO, bitstream: Bitstream) -> None:
    digest, size = hashlib.sha512(), 0
    while chunk := data.read(1 << 20):
        size += len(chunk)
        if size > MAX_BITSTREAM_BYTES:
            raise DriverError(
                f"image {bitstream.image_id} has more than {MAX_BITSTREAM_BYTES} bytes; no FPGA takes that"
            )
        digest.update(chunk)
        file.write(chunk)
    if digest.hexdigest() != bitstream.digest:
        raise DriverError(
            f"the data of image {bitstream.image_id} has sha512 {digest.hexdigest()[:16]}..., not {bitstream.digest[:16]}...; "
            "nothing was programmed"
        )
