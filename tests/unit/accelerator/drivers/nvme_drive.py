"""An NVMe drive behind the kernel's ioctl: decodes the command as the kernel does, and answers in the caller's memory.

The layouts are those of the NVM Express Base Specification; the drive's content is a file in place of /dev/nvme0n1.
"""

import ctypes
import struct

from moorage.accelerator.drivers.nvme import ADMIN_IOCTL, NvmeEraser

ADDRESS = "0000:5e:00.0"
BLOCKS = 256
SECRET = b"the last tenant's data " * 178


class Drive:
    """`polls`: how often a sanitize is seen in progress. `keeps`: erasing leaves the content."""

    def __init__(self, directory, tree, address=ADDRESS, name="nvme0", *, sanicap=1, fna=4, oacs=2, of=None) -> None:
        self.directory, self.address, self.name = directory, address, name
        self.sanicap, self.fna, self.oacs = sanicap, fna, oacs
        self.polls, self.keeps, self.ends_with = 0, False, 0x101
        self.left, self.action, self.status = 0, 0, 0
        self.estimate_s = 0xFFFFFFFF
        self.attached, self.allocated, self.shared_with = [1], [1], {}
        self.refuses = {}  #: {opcode: NVMe status}
        self.commands = []  #: (opcode, namespace, cdw10)
        directory.mkdir(exist_ok=True)
        (directory / name).write_bytes(b"")
        self.disk = directory / f"{name}n1"
        self.write()
        tree.add(address, "1b36:0010", kind="010802", driver="nvme", of=of)
        self.sysfs = tree.devices / address / "nvme" / name
        tree.write(self.sysfs / "state", "live")
        tree.write(self.sysfs / f"{name}n1" / "size", BLOCKS * 8)

    def write(self):
        """A guest's writes."""
        self.disk.write_bytes(b"".join(SECRET[:4088] + struct.pack("<Q", number) for number in range(BLOCKS)))

    @property
    def has_secret(self):
        return SECRET[:100] in self.disk.read_bytes()

    def ioctl(self, descriptor, request, command):
        assert request == ADMIN_IOCTL == (3 << 30 | 72 << 16 | ord("N") << 8 | 0x41)
        assert len(command) == 72
        opcode, nsid = command[0], struct.unpack_from("<I", command, 4)[0]
        address, size = struct.unpack_from("<Q", command, 24)[0], struct.unpack_from("<I", command, 36)[0]
        cdw10 = struct.unpack_from("<I", command, 40)[0]
        self.commands.append((opcode, nsid, cdw10))
        if opcode in self.refuses:
            return self.refuses[opcode]
        answer = {0x06: self.identify, 0x02: self.log, 0x80: self.format, 0x84: self.sanitize}[opcode](nsid, cdw10)
        if size:
            ctypes.memmove(address, answer.ljust(size, b"\0"), size)
        return 0

    def identify(self, nsid, cns):
        raw = bytearray(4096)
        if cns == 1:
            raw[64:72] = b"FW 1.2.3"
            struct.pack_into("<H", raw, 78, 7)
            struct.pack_into("<H", raw, 256, self.oacs)
            struct.pack_into("<I", raw, 328, self.sanicap)
            raw[524] = self.fna
        elif cns == 0:
            raw[26], raw[29] = 0x01, 0x00  # the second of its formats
            raw[30] = int(nsid in self.shared_with)
        elif cns in (2, 0x10):
            found = self.attached if cns == 2 else self.allocated
            struct.pack_into(f"<{len(found)}I", raw, 0, *found)
        elif cns == 0x12:
            others = [7, *self.shared_with.get(nsid, ())]
            struct.pack_into(f"<{len(others) + 1}H", raw, 0, len(others), *others)
        return bytes(raw)

    def log(self, nsid, cdw10):
        assert cdw10 & 0xFF == 0x81
        assert cdw10 >> 16 == 127  # 512 bytes
        if self.status & 7 == 2:
            self.left -= 1
            if self.left < 0:
                self.status = self.ends_with
                if self.ends_with & 7 in (1, 4):
                    self.erase()
        progress = 0xFFFF if self.status & 7 != 2 else 65536 // (self.left + 2)
        return struct.pack("<HHIIII", progress, self.status, self.action, *[self.estimate_s] * 3)

    def sanitize(self, nsid, cdw10):
        self.action, self.status, self.left = cdw10, 2, self.polls
        return b""

    def format(self, nsid, cdw10):
        self.erase()
        return b""

    def erase(self):
        if not self.keeps:
            self.disk.write_bytes(b"\0" * BLOCKS * 4096)

    def orders(self):
        """The commands that erase: (verb, namespace, action of a sanitize or SES of a format)."""
        return [
            ("sanitize", nsid, cdw10 & 7) if opcode == 0x84 else ("format", nsid, cdw10 >> 9 & 7)
            for opcode, nsid, cdw10 in self.commands
            if opcode in (0x80, 0x84)
        ]

    def eraser(self, sysfs):
        """As a new process has it. A regular file cannot be read directly on every file system."""
        return NvmeEraser(sysfs, self.directory, self.ioctl, poll_s=0.001, read_flags=0)
