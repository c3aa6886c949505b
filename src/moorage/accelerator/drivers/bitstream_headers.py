"""Headers of bitstream files: the region type they are made for, and the id that a card shows once they are loaded.

Only the fields needed to refuse a wrong file before it is loaded, and to recognise it afterwards, are read. Names and
paths in a header are ignored.
Source: OPAE's packager (``.gbs``); XRT's xclbin.h (``.xclbin``: struct axlf).
"""

import struct
from dataclasses import dataclass
from pathlib import Path

import msgspec

from moorage.accelerator.drivers.base import DriverError
from moorage.accelerator.model.naming import canonical_id

_GBS_MAGIC = b"XeonFPGA\xb7GBSv001"
_MAX_HEADER_BYTES = 1 << 16
_AXLF_MAGIC = b"xclbin2\0"
#: struct axlf up to and with m_header.uuid.
_AXLF = struct.Struct("<8s i 28s 256s Q  Q Q Q H B B H H 16s 64s 16s")


@dataclass(frozen=True, slots=True)
class BitstreamHeader:
    region_type: str  #: UUID; empty: the format does not have it
    shown: str  #: UUID that the card shows once the file is loaded
    offset: int = 0  #: of the data, in bytes


class _Cluster(msgspec.Struct):
    accelerator_type: str = msgspec.field(name="accelerator-type-uuid")


class _AfuImage(msgspec.Struct):
    interface: str = msgspec.field(name="interface-uuid")
    clusters: list[_Cluster] = msgspec.field(name="accelerator-clusters")


class _Gbs(msgspec.Struct):
    image: _AfuImage = msgspec.field(name="afu-image")


def read_gbs_header(path: Path) -> BitstreamHeader:
    with path.open("rb") as file:
        magic, length = file.read(len(_GBS_MAGIC)), int.from_bytes(file.read(4), "little")
        if magic != _GBS_MAGIC:
            raise DriverError("the image is not a green bitstream (.gbs): its first bytes differ")
        if not 0 < length <= _MAX_HEADER_BYTES:
            raise DriverError(
                f"the image's header claims to be {length} bytes long; at most {_MAX_HEADER_BYTES} are allowed"
            )
        text = file.read(length)
        has_bits = bool(file.read(1))
    try:
        about = msgspec.json.decode(text, type=_Gbs).image
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DriverError(f"the image's header cannot be read: {error}") from error
    if len(about.clusters) != 1 or not has_bits:
        raise DriverError(
            f"the image has {len(about.clusters)} accelerators in its header and {'some' if has_bits else 'no'} data; "
            "it needs one accelerator and data"
        )
    offset = len(_GBS_MAGIC) + 4 + length
    return BitstreamHeader(canonical_id(about.interface), canonical_id(about.clusters[0].accelerator_type), offset)


def read_xclbin_header(path: Path) -> BitstreamHeader:
    with path.open("rb") as file:
        raw = file.read(_AXLF.size)
    if len(raw) < _AXLF.size or not raw.startswith(_AXLF_MAGIC):
        raise DriverError("the image is not an .xclbin: its first bytes differ")
    fields = _AXLF.unpack(raw)
    length, own = fields[5], fields[-1]
    if length != path.stat().st_size:
        raise DriverError(f"the image's header claims {length} bytes, but the file has {path.stat().st_size}")
    # The interface in the header is that of a part of the shell; the loader compares it.
    return BitstreamHeader("", canonical_id(own.hex()))
