"""`moorage backup` copies the state of a running plane; `moorage restore` puts it back into a stopped one."""

import hashlib
import io
import json
import secrets
import stat
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TypedDict, cast

import click

from moorage.cli.backup import backup_files as files
from moorage.cli.backup.age_file import SUFFIX, Passphrase
from moorage.cli.output import console, json_option, progress, table
from moorage.cli.state import config_option, is_in_use, open_config
from moorage.config import Config
from moorage.core.clock import SystemClock
from moorage.core.errors import StartError
from moorage.db import migrations
from moorage.db.engine import open_engine
from moorage.durable import write_durably

MANIFEST = "manifest.json"
#: The whole content of an encrypted backup, except for its outer manifest.
ARCHIVE = f"backup.tar{SUFFIX}"
_STATE = Path("state")


_passphrase_option = click.option(
    "--passphrase-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File whose first line is the passphrase of the backup; only you may be able to read it.",
)


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@config_option
@click.option("--encrypt", is_flag=True, help="Encrypt the backup with a passphrase, which the command asks for.")
@_passphrase_option
@click.option("--check", is_flag=True, help="Make no backup; check the one in DIRECTORY and show its contents.")
@json_option
def backup(
    directory: Path,
    config_path: Path | None,
    passphrase_file: Path | None,
    *,
    encrypt: bool,
    check: bool,
    as_json: bool,
) -> None:
    """Copy the databases and state of the plane to DIRECTORY, which must not exist. The plane may run.

    Each database is consistent in itself, and Placement's is copied last. Run `moorage audit` after a restore to find
    changes made during the backup. PostgreSQL and MariaDB are dumped with their own programs. The backup contains
    secrets: only you can read it, and --encrypt or --passphrase-file encrypts it.
    """
    if check:
        manifest = _check_backup(directory, passphrase_file)
        _print_manifest(manifest, as_json=as_json, what=f"The backup in {directory} is complete and unchanged.")
        return
    config = open_config(config_path)
    passphrase = (
        _passphrase(passphrase_file, "Passphrase of the backup", is_new=True) if encrypt or passphrase_file else None
    )
    _create_directory(directory)
    manifest = _copy_encrypted(config, directory, passphrase) if passphrase else _copy(config, _Directory(directory))
    _print_manifest(manifest, as_json=as_json, what=f"The backup is in {directory}.")


class DatabaseEntry(TypedDict):
    file: str
    bytes: int
    sha256: str
    revision: str | None


class BackupManifest(TypedDict, total=False):
    """Describes a backup. Outside an archive it has `format`, `file`, `bytes` and `sha256` instead of `databases`."""

    moorage: str
    encrypted: bool
    began_at: str
    ended_at: str
    databases: dict[str, DatabaseEntry]
    format: str
    file: str
    bytes: int
    sha256: str


class _Directory:
    """A backup as plain files."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.drafts = directory  #: directory for new dumps

    def add(self, source: Path, inner: Path) -> None:
        if source != self._directory / inner:
            files.copy_file(source, self._directory / inner)

    def add_manifest(self, manifest: BackupManifest) -> None:
        write_durably(self._directory / MANIFEST, _text(manifest))


class _Archive:
    """A backup in one archive file."""

    def __init__(self, tar: tarfile.TarFile, drafts: Path) -> None:
        self._tar = tar
        self.drafts = drafts

    def add(self, source: Path, inner: Path) -> None:
        try:
            self._tar.add(source, str(inner), recursive=False)
        except FileNotFoundError:
            return
        if source.parent == self.drafts:
            source.unlink()

    def add_manifest(self, manifest: BackupManifest) -> None:
        content = _text(manifest)
        entry = tarfile.TarInfo(MANIFEST)
        entry.size, entry.mode = len(content), 0o600
        self._tar.addfile(entry, io.BytesIO(content))


def _copy(config: Config, target: _Directory | _Archive) -> BackupManifest:
    """Copies everything. The manifest comes last: a backup without one is incomplete."""
    services = [service for service in files.ORDER if service in config.database_urls()]
    manifest: BackupManifest = {
        "moorage": version("moorage"),
        "encrypted": isinstance(target, _Archive),
        "began_at": SystemClock().now().isoformat(timespec="seconds"),
        "databases": {},
    }
    with progress("backing up") as show:
        for service in services:
            path = target.drafts / f"{service}.backup"
            files.dump_database(config.database_url(service), path, partial(show, service))
            manifest["databases"][service] = _dump_entry(config, service, path)
            target.add(path, Path(path.name))
        for inner in files.state_files(config.state):
            target.add(config.state / inner, _STATE / inner)
        if not config.source.is_relative_to(config.state):
            target.add(config.source, Path(config.source.name))
    manifest["ended_at"] = SystemClock().now().isoformat(timespec="seconds")
    target.add_manifest(manifest)
    return manifest


def _copy_encrypted(config: Config, directory: Path, passphrase: Passphrase) -> BackupManifest:
    """Writes an encrypted backup. Plain dumps are only in temporary files next to the databases."""
    path = directory / ARCHIVE
    with (
        TemporaryDirectory(prefix=files.DRAFTS, dir=config.state) as drafts,
        passphrase.write(path, secrets.token_bytes) as sealed,
        tarfile.open(fileobj=cast(IO[bytes], sealed), mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        manifest = _copy(config, _Archive(tar, Path(drafts)))
    outer: BackupManifest = {
        "moorage": manifest["moorage"],
        "encrypted": manifest["encrypted"],
        "began_at": manifest["began_at"],
        "ended_at": manifest["ended_at"],
        "format": "age-encryption.org/v1",
        "file": path.name,
        "bytes": path.stat().st_size,
        "sha256": files.file_digest(path),
    }
    write_durably(directory / MANIFEST, _text(outer))
    return manifest


@contextmanager
def _plain_files(directory: Path, outer: BackupManifest, passphrase_file: Path | None, drafts: Path) -> Iterator[Path]:
    """The backup as plain files: `directory` itself or, if encrypted, a temporary directory in `drafts`."""
    if not outer["encrypted"]:
        yield directory
        return
    if not hasattr(tarfile, "data_filter"):
        raise StartError("this Python unpacks archives without a check of their paths; use Python 3.11.4 or newer")
    passphrase = _passphrase(passphrase_file, "Passphrase of the backup", is_new=False)
    with TemporaryDirectory(prefix=files.DRAFTS, dir=drafts) as plain:
        parts = passphrase.read(directory / outer["file"])
        with tarfile.open(fileobj=cast(IO[bytes], _PartsStream(parts)), mode="r|") as tar:
            tar.extractall(plain, filter="data")
        for _ in parts:
            pass  # to the end: a file that was cut is found there
        yield Path(plain)


def _check_backup(directory: Path, passphrase_file: Path | None) -> BackupManifest:
    """Checks a backup and returns its manifest. Encrypted contents are not written to disk."""
    outer = _read_outer_manifest(directory)
    if not outer["encrypted"]:
        return _check_files(directory)
    parts = _passphrase(passphrase_file, "Passphrase of the backup", is_new=False).read(directory / outer["file"])
    digests, manifest = {}, outer
    with tarfile.open(fileobj=cast(IO[bytes], _PartsStream(parts)), mode="r|") as tar:
        for entry in tar:
            if file := tar.extractfile(entry):
                if entry.name == MANIFEST:
                    manifest = json.loads(file.read())
                else:
                    digests[entry.name] = hashlib.file_digest(cast(io.BufferedReader, file), "sha256").hexdigest()
    for _ in parts:
        pass  # to the end: a file that was cut is found there
    for service, one in manifest.get("databases", {"all databases": outer}).items():
        if digests.get(one["file"]) != one["sha256"]:
            raise StartError(f"{directory} does not match its manifest for {service}; use another backup")
    return manifest


class _PartsStream:
    """A file object that reads an iterator of parts as one stream."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts
        self._rest = b""

    def read(self, size: int) -> bytes:
        while len(self._rest) < size and (part := next(self._parts, b"")):
            self._rest += part
        given, self._rest = self._rest[:size], self._rest[size:]
        return given


def _passphrase(path: Path | None, question: str, *, is_new: bool) -> Passphrase:
    if path is None:
        return Passphrase(click.prompt(question, hide_input=True, confirmation_prompt=is_new))
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise StartError(f"other users can read the passphrase in {path}; run chmod 600 {path}")
    return Passphrase(path.read_text(encoding="utf-8").partition("\n")[0])


def _text(manifest: BackupManifest) -> bytes:
    return (json.dumps(manifest, indent=2) + "\n").encode()


def _create_directory(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, mode=0o700)
    except FileExistsError as error:
        raise StartError(f"{directory} already exists; use a new directory") from error
    except OSError as error:
        raise StartError(f"{directory} cannot be created: {error.strerror}") from error


def _dump_entry(config: Config, service: str, path: Path) -> DatabaseEntry:
    engine = open_engine(config.database_url(service))
    try:
        revision = migrations.current_revision(engine, service)
    finally:
        engine.dispose()
    return {"file": path.name, "bytes": path.stat().st_size, "sha256": files.file_digest(path), "revision": revision}


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@config_option
@click.option("--with-host", is_flag=True, help="Also restore the state of this machine: guests, attached devices.")
@_passphrase_option
@json_option
def restore(
    directory: Path, config_path: Path | None, passphrase_file: Path | None, *, with_host: bool, as_json: bool
) -> None:
    """Replace the databases and state of the plane with those in DIRECTORY. No process of the plane may run.

    All files are checked first. Afterwards, start the plane and run `moorage audit`.
    """
    config = open_config(config_path)
    if is_in_use(config.state):
        raise StartError(
            f"a plane is running with {config.state}; stop it, and every other process that uses its databases"
        )
    with _plain_files(directory, _read_outer_manifest(directory), passphrase_file, config.state) as plain:
        manifest = _check_files(plain)
        _restore_all(config, manifest, plain, with_host=with_host)
    _print_manifest(
        manifest, as_json=as_json, what="Restored. Start the plane, then run `moorage audit` to find contradictions."
    )


def _restore_all(config: Config, manifest: BackupManifest, directory: Path, *, with_host: bool) -> None:
    if strange := sorted(set(manifest["databases"]) - set(config.database_urls())):
        raise StartError(
            f"the backup contains {', '.join(strange)}, which {config.source} does not run; use another --config"
        )
    with progress("restoring") as show:
        for number, (service, one) in enumerate(manifest["databases"].items()):
            show(service, number, len(manifest["databases"]))
            files.restore_database(config.database_url(service), directory / one["file"])
        for inner in files.state_files(directory / _STATE):
            if with_host or inner.parts[0] not in files.HOST:
                files.copy_file(directory / _STATE / inner, config.state / inner)


def _read_outer_manifest(directory: Path) -> BackupManifest:
    """The manifest that is readable without a passphrase; `encrypted` says whether one is needed."""
    try:
        manifest: BackupManifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise StartError(f"{directory} has no {MANIFEST}: it is not a backup, or an incomplete one") from error
    except ValueError as error:
        raise StartError(f"{directory / MANIFEST} cannot be read: {error}") from error
    return {"encrypted": False} | manifest  # missing in older releases


def _check_files(directory: Path) -> BackupManifest:
    """The manifest, after all files were checked. Raises `StartError` for an incomplete backup."""
    manifest = _read_outer_manifest(directory)
    for service, one in manifest["databases"].items():
        path = directory / one["file"]
        if not path.is_file() or files.file_digest(path) != one["sha256"]:
            raise StartError(f"{path} does not match the manifest for {service}; use another backup")
        first, newest = migrations.revisions(service)[0], migrations.head_revision(service)
        if one["revision"] is not None and not first <= one["revision"] <= newest:
            raise StartError(
                f"the backup of {service} is at revision {one['revision']}; this program reads {first} to {newest}: "
                f"use the program that made it, moorage {manifest['moorage']}"
            )
    return manifest


def _print_manifest(manifest: BackupManifest, *, as_json: bool, what: str) -> None:
    if as_json:
        click.echo(json.dumps(manifest, indent=2))
        return
    rows = table("database", "schema", "bytes", "sha256", right=("bytes",))
    for service, one in manifest["databases"].items():
        rows.add_row(service, one["revision"] or "-", f"{one['bytes']:,}", f"{one['sha256'][:16]}...")
    console().print(rows)
    console().print(what, soft_wrap=True)
    if manifest["encrypted"]:
        console().print("The backup is encrypted. It cannot be read without the passphrase.", soft_wrap=True)
    else:
        console().print(
            "The backup is not encrypted and contains all keys and passwords of the plane. --encrypt encrypts it.",
            soft_wrap=True,
        )
