"""Checks the permissions of a plane's files and the free disk space."""

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from sqlalchemy import make_url

from moorage.cli.doctor.finding import CheckFinding, broken, fine, warning
from moorage.config import Config

#: Reading or writing one of these grants administrator rights, reveals all data, or revives revoked tokens.
SECRETS = (
    "credentials.json",
    "host/credential.json",
    "hosts.json",
    "identity.db",
    "revoked_tokens",
    "token.key",
    "token.key.others",
    "users.yaml",
)

#: (free bytes, free share). Below LOW, warn that a disk is nearly full; below FULL, writes are about to fail.
LOW = (1 << 30, 0.05)
FULL = (64 << 20, 0.005)


def check_files(config: Config) -> Iterator[CheckFinding]:
    state = config.state
    if not state.is_dir():
        yield warning("state", "the state directory does not exist", state, "run `moorage up` to create it")
        return
    wrong = [*_directory(state), *_secrets(config), *_configuration(config)]
    yield from wrong
    if not wrong:
        yield fine("files", "only this user can access the state directory and the secrets", state)
    yield from _provider_configuration(config)
    for place in _places(config):
        yield _disk_space(place)
    if "image" in config.runs and config.images.is_dir():
        yield shared_disk(config.images, _sqlite_files(config), mounted())


def _directory(state: Path) -> Iterator[CheckFinding]:
    status = state.stat()
    if status.st_uid != os.geteuid():
        yield warning(
            "files", f"the state directory belongs to user {status.st_uid}, not to {os.geteuid()}", state,
            "run moorage as its owner, or change the owner with chown",
        )  # fmt: skip
    # With 0711 other users, such as that of QEMU, reach what they may read, and list nothing.
    if stat.S_IMODE(status.st_mode) & 0o066:
        yield warning("files", "other users can list the state directory", state, f"chmod 700 {state}")
    if not os.access(state, os.R_OK | os.W_OK | os.X_OK):
        yield broken("files", "this user cannot write to the state directory", state, f"chown or chmod {state}")


def _secrets(config: Config) -> Iterator[CheckFinding]:
    users = config.identity.users_file
    paths = [config.state / name for name in SECRETS] + ([Path(users)] if users else [])
    paths += [path for path in _sqlite_files(config) if path.parent == config.state]
    trail = config.state / config.trail.path
    paths += [trail] if config.trail.path else []
    paths += [config.certificate[1]] if config.certificate else []
    for path in paths:
        if not path.exists():
            continue
        if not os.access(path, os.R_OK):
            yield broken("files", f"{path.name} cannot be read by this user", path, "chown it to the plane's user")
        elif mode := stat.S_IMODE(path.stat().st_mode) & 0o077:
            remedy = f"chmod 600 {path}" + (
                "" if path.suffix == ".db" or path == trail else "; replace the secret, which others may have read"
            )
            yield broken(
                "files", f"other users can read or write {path.name} (mode {mode:04o} beyond the owner)", path, remedy
            )


def _configuration(config: Config) -> Iterator[CheckFinding]:
    """Checks the configuration file, which is secret if it contains passwords."""
    if not config.source.exists():
        return
    mode = stat.S_IMODE(config.source.stat().st_mode)
    has_secrets = bool(config.identity.password or config.before_end.smtp_password) or any(
        make_url(url).password for url in (*config.database_urls().values(), config.plane.hints) if url
    )
    if mode & 0o022:
        yield broken(
            "files", "other users can write the configuration file", config.source, f"chmod go-w {config.source}"
        )
    elif mode & 0o004 and has_secrets:
        yield broken(
            "files", "all users can read the configuration file, which contains passwords", config.source,
            f"chmod o-r {config.source}",
        )  # fmt: skip


def _provider_configuration(config: Config) -> Iterator[CheckFinding]:
    if "agent" not in config.runs:
        return
    from moorage.agent.provider_config.load import ProviderFiles, check_directory

    directory = config.provider_config
    report = check_directory(ProviderFiles(directory, config.compute.provider_config_writable_by_others))
    for fault in report.faults:
        yield broken("provider-config", str(fault), directory, "fix it and run `moorage provider-config validate`")
    for text in report.warnings:
        yield warning("provider-config", text, directory, "fix it, or remove it")
    if not report.faults and not report.warnings:
        yield fine("provider-config", f"{len(report.configs)} providers configured by files", directory)


def _places(config: Config) -> list[Path]:
    """One directory per disk that the plane writes to."""
    found: dict[int, Path] = {}
    trail = (config.state / config.trail.path).parent
    images = [config.images] if "image" in config.runs else []
    for place in (config.state, trail, *images, *(path.parent for path in _sqlite_files(config))):
        if place.is_dir():
            found.setdefault(place.stat().st_dev, place)
    return list(found.values())


def shared_disk(images: Path, databases: Sequence[Path], disks: Sequence[Path]) -> CheckFinding:
    """Warns if images share a disk with a database although another of `disks` has more space. Members decide how much
    they upload, limited only by quotas and [image] keep_free_gb.
    """
    own = images.stat().st_dev
    shared = [path for path in databases if path.exists() and path.stat().st_dev == own]
    larger = [disk for disk in disks if disk.stat().st_dev != own and _free(disk) > _free(images)]
    if not shared or not larger:
        return fine("images", "images are on a disk without databases, or no larger disk exists", images)
    best = max(larger, key=_free)
    return warning(
        "images", f"images share a disk with {shared[0].name}, and {best} has more free space", images,
        f"move them to a directory there, readable by this user only, and set [image] directory to it: {best}/...",
    )  # fmt: skip


def mounted(table: Path = Path("/proc/self/mounts")) -> list[Path]:
    """Mount points of disks that this user can write to; empty if the system has no mount table."""
    if not table.exists():
        return []
    rows = (line.split() for line in table.read_text().splitlines())
    places = [Path(row[1].replace("\\040", " ")) for row in rows if row[0].startswith("/dev/")]
    return [place for place in places if place.is_dir() and os.access(place, os.W_OK | os.X_OK)]


def _free(place: Path) -> int:
    disk = os.statvfs(place)
    return disk.f_bavail * disk.f_frsize


def _sqlite_files(config: Config) -> list[Path]:
    urls = [make_url(url) for url in config.database_urls().values()]
    return [Path(url.database or "") for url in urls if url.get_backend_name() == "sqlite"]


def _disk_space(place: Path) -> CheckFinding:
    disk = os.statvfs(place)
    free, total = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    return judge_disk_space(place, free, total, disk.f_favail if disk.f_files else 1)


def judge_disk_space(place: Path, free: int, total: int, free_files: int) -> CheckFinding:
    """The finding for one disk. `free` and `total` are bytes."""
    said = f"{free / (1 << 30):.1f} of {total / (1 << 30):.1f} GiB free"
    remedy = "free some space; when the disk is full, every write fails with 503"
    if not free_files:
        return broken("disk", "no inodes are left: no file can be created", place, remedy)
    if free < FULL[0] or free < total * FULL[1]:
        return broken("disk", said, place, remedy)
    # A large disk with 20 GiB left is not nearly full, even if that is a small share.
    if free < LOW[0] or (free < total * LOW[1] and free < 20 * LOW[0]):
        return warning("disk", said, place, remedy)
    return fine("disk", said, place)
