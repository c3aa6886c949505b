"""Small files that are replaced as a whole, and are still there after a kill or a power cut.

Not here: files that grow (databases, logs, uploads), and who may write when: that is the caller's lock.
"""

import os
from pathlib import Path


def write_durably(path: Path, content: bytes) -> None:
    """`path` has its old content or `content`, whatever happens in between; private to this user.

    Written beside, fsync, rename, fsync of the directory: durable when this returns.
    """
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)  # a crash left it, perhaps with another mode
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Makes a rename in it last."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
