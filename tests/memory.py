"""Puts the temporary files of tests into memory if there is enough of it, and limits garbage collection.

A commit of SQLite, which ends with an fsync, takes 0.02 ms in memory and 3 to 6 ms on a disk; MariaDB creates a table
five times as fast. Tests about disks (`tests/crash`) name a directory on a disk.
"""

import contextlib
import gc
import os
import shutil
import tempfile
from pathlib import Path

PLACE = "/dev/shm"
LEAST_BYTES = 4 << 30


def use_memory() -> None:
    """For this process and those that it starts. Keeps a directory that TMPDIR already names."""
    with contextlib.suppress(OSError):
        if "TMPDIR" not in os.environ and min(shutil.disk_usage(PLACE).free, _available_bytes()) > LEAST_BYTES:
            os.environ["TMPDIR"] = PLACE
            tempfile.tempdir = None  # the directory is looked for again


def collect_rarely() -> None:
    """Sets the thresholds of the garbage collection.

    A test creates a plane, whose objects live until the test ends, and the import of all tests only creates objects:
    with Python's thresholds (700, 10, 10), collections that found nothing took a sixth of the CPU of the core suite. With
    these a worker needs no more memory than before.
    """
    gc.set_threshold(10_000, 10, 10)


def keep_imported() -> None:
    """To be called when all tests are imported: later collections leave modules and tests out."""
    gc.collect()
    gc.freeze()


def _available_bytes() -> int:
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) << 10
