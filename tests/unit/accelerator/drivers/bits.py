"""Invented bitstreams in the formats that devices accept."""

import hashlib
import io
import json

from moorage.accelerator.model.devices import Bitstream, Function


def bitstream_of(data: bytes, image_id: str, *functions: str) -> tuple[Bitstream, bytes]:
    digest = hashlib.sha512(data).hexdigest()
    return Bitstream(digest, image_id, functions=tuple(Function(one) for one in functions)), data


def bitstreams() -> list[tuple[Bitstream, bytes]]:
    return [bitstream_of(b"one" * 100, "image-1"), bitstream_of(b"two" * 100, "image-2")]


def opened(data: bytes) -> io.BytesIO:
    return io.BytesIO(data)


def gbs(interface_id: str, afu_id: str, payload: bytes = b"bits" * 64) -> bytes:
    """A green bitstream in the format of OPAE's packager."""
    clusters = [{"accelerator-type-uuid": afu_id, "name": "made_up", "total-contexts": 1}]
    about = {"version": 1, "afu-image": {"interface-uuid": interface_id, "accelerator-clusters": clusters}}
    header = json.dumps(about).encode()
    return b"XeonFPGA\xb7GBSv001" + len(header).to_bytes(4, "little") + header + payload


def xclbin(own_id: str, payload: bytes = b"bits" * 64) -> bytes:
    """In the format of XRT's xclbin.h, up to the last field of the head that is read."""
    head = b"xclbin2\0" + (-1).to_bytes(4, "little", signed=True) + b"\xff" * 28 + bytes(256) + bytes(8)
    tail = bytes(16) + bytes(2 + 1 + 1 + 2 + 2) + bytes(16) + b"made_up".ljust(64, b"\0")
    tail += bytes.fromhex(own_id.replace("-", "")) + bytes(16) + bytes(4)
    length = len(head) + 8 + len(tail) + len(payload)
    return head + length.to_bytes(8, "little") + tail + payload
