"""`moorage backup` and `moorage restore`: databases and state of a plane, while it runs; and back, while it does not."""

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
from typing import IO, Any, cast

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
#: All of a backup that is encrypted, but for what its manifest says.
ARCHIVE = f"backup.tar{SUFFIX}"
_STATE = Path("state")


_passphrase_option = click.option(
    "--passphrase-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The backup's passphrase: the first line of this file, which only you may read.",
)


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@config_option
@click.option("--encrypt", is_flag=True, help="Encrypt it with a passphrase, which is asked for.")
@_passphrase_option
@click.option("--check", is_flag=True, help="Make none: check the one that is in DIRECTORY, and show what it has.")
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
    """Copy the databases and the state of a plane into DIRECTORY, which must not be there yet. The plane may run.

    Each database is as of one moment, Placement's the last; what happened in between, `moorage audit` finds after a
    restore. PostgreSQL and MariaDB are dumped by their own programs. Secrets are in it: it is made for you alone, and
    encrypted with --encrypt or --passphrase-file.
    """
    if check:
        manifest = _looked_through(directory, passphrase_file)
        _say(manifest, as_json=as_json, what=f"{directory} is whole.")
        return
    config = open_config(config_path)
    passphrase = (
        _passphrase(passphrase_file, "Passphrase of the backup", is_new=True) if encrypt or passphrase_file else None
    )
    _make(directory)
    manifest = _encrypted(config, directory, passphrase) if passphrase else _copy(config, _Directory(directory))
    _say(manifest, as_json=as_json, what=f"All of it is in {directory}.")


class _Directory:
    """A backup of files as they are."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.drafts = directory  #: where dumps are made

    def add(self, source: Path, inner: Path) -> None:
        if source != self._directory / inner:
            files.copy(source, self._directory / inner)

    def add_manifest(self, manifest: dict[str, Any]) -> None:
        write_durably(self._directory / MANIFEST, _text(manifest))


class _Archive:
    """A backup in one file: what is written to `tar`."""

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

    def add_manifest(self, manifest: dict[str, Any]) -> None:
        content = _text(manifest)
        entry = tarfile.TarInfo(MANIFEST)
        entry.size, entry.mode = len(content), 0o600
        self._tar.addfile(entry, io.BytesIO(content))


def _copy(config: Config, target: _Directory | _Archive) -> dict[str, Any]:
    """All of it; the manifest, which is the last: a backup without it is none."""
    services = [service for service in files.ORDER if service in config.database_urls()]
    manifest: dict[str, Any] = {
        "moorage": version("moorage"),
        "encrypted": isinstance(target, _Archive),
        "began_at": SystemClock().now().isoformat(timespec="seconds"),
        "databases": {},
    }
    with progress("backing up") as show:
        for service in services:
            path = target.drafts / f"{service}.backup"
            files.dump(config.database_url(service), path, partial(show, service))
            manifest["databases"][service] = _described(config, service, path)
            target.add(path, Path(path.name))
        for inner in files.state_files(config.state):
            target.add(config.state / inner, _STATE / inner)
        if not config.source.is_relative_to(config.state):
            target.add(config.source, Path(config.source.name))
    manifest["ended_at"] = SystemClock().now().isoformat(timespec="seconds")
    target.add_manifest(manifest)
    return manifest


def _encrypted(config: Config, directory: Path, passphrase: Passphrase) -> dict[str, Any]:
    """Nothing of it is in `directory` as it is: dumps are made beside the databases' own state, and gone afterwards."""
    path = directory / ARCHIVE
    with (
        TemporaryDirectory(prefix=files.DRAFTS, dir=config.state) as drafts,
        passphrase.write(path, secrets.token_bytes) as sealed,
        tarfile.open(fileobj=cast(IO[bytes], sealed), mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        manifest = _copy(config, _Archive(tar, Path(drafts)))
    outer = {name: manifest[name] for name in ("moorage", "encrypted", "began_at", "ended_at")}
    outer |= {"format": "age-encryption.org/v1", "file": path.name, "bytes": path.stat().st_size}
    write_durably(directory / MANIFEST, _text(outer | {"sha256": files.digest(path)}))
    return manifest


@contextmanager
def _opened(directory: Path, outer: dict[str, Any], passphrase_file: Path | None, drafts: Path) -> Iterator[Path]:
    """The backup as files: `directory`, or one in `drafts` that is gone afterwards, where it is encrypted."""
    if not outer["encrypted"]:
        yield directory
        return
    passphrase = _passphrase(passphrase_file, "Passphrase of the backup", is_new=False)
    with TemporaryDirectory(prefix=files.DRAFTS, dir=drafts) as plain:
        parts = passphrase.read(directory / outer["file"])
        with tarfile.open(fileobj=cast(IO[bytes], _Parts(parts)), mode="r|") as tar:
            tar.extraction_filter = getattr(tarfile, "data_filter", None)
            tar.extractall(plain)  # noqa: S202 - authentic, and filtered
        for _ in parts:
            pass  # to the end: a file that was cut is found there
        yield Path(plain)


def _looked_through(directory: Path, passphrase_file: Path | None) -> dict[str, Any]:
    """The manifest of a backup in which everything is as it was made. What is encrypted is on no disk meanwhile."""
    outer = _outer(directory)
    if not outer["encrypted"]:
        return _read(directory)
    parts = _passphrase(passphrase_file, "Passphrase of the backup", is_new=False).read(directory / outer["file"])
    digests, manifest = {}, outer
    with tarfile.open(fileobj=cast(IO[bytes], _Parts(parts)), mode="r|") as tar:
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
            raise StartError(f"{directory} has not what was backed up of {service}; take another backup")
    return manifest


class _Parts:
    """Parts of a file, to be read as one stream."""

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
        raise StartError(f"others can read the passphrase in {path}; chmod 600 {path}")
    return Passphrase(path.read_text(encoding="utf-8").partition("\n")[0])


def _text(manifest: dict[str, Any]) -> bytes:
    return (json.dumps(manifest, indent=2) + "\n").encode()


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, mode=0o700)
    except FileExistsError as error:
        raise StartError(f"{directory} is there already; name a new directory") from error
    except OSError as error:
        raise StartError(f"{directory} cannot be made: {error.strerror}") from error


def _described(config: Config, service: str, path: Path) -> dict[str, object]:
    engine = open_engine(config.database_url(service))
    try:
        revision = migrations.current_revision(engine, service)
    finally:
        engine.dispose()
    return {"file": path.name, "bytes": path.stat().st_size, "sha256": files.digest(path), "revision": revision}


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@config_option
@click.option("--with-host", is_flag=True, help="Put back what belongs to this machine, too: guests, plugged devices.")
@_passphrase_option
@json_option
def restore(
    directory: Path, config_path: Path | None, passphrase_file: Path | None, *, with_host: bool, as_json: bool
) -> None:
    """Put the databases and the state of DIRECTORY in the place of the plane's own. No process of the plane may run.

    The files are checked before anything is touched. Afterwards start the plane, and see what `moorage audit` finds.
    """
    config = open_config(config_path)
    if is_in_use(config.state):
        raise StartError(f"a plane runs with {config.state}; stop it, and every other process on its databases")
    with _opened(directory, _outer(directory), passphrase_file, config.state) as plain:
        manifest = _read(plain)
        _put_back(config, manifest, plain, with_host=with_host)
    _say(
        manifest, as_json=as_json, what="All of it is back. Start the plane; `moorage audit` says what does not agree."
    )


def _put_back(config: Config, manifest: dict[str, Any], directory: Path, *, with_host: bool) -> None:
    if strange := sorted(set(manifest["databases"]) - set(config.database_urls())):
        raise StartError(
            f"the backup has {', '.join(strange)}, which {config.source} does not run; name another --config"
        )
    with progress("restoring") as show:
        for number, (service, one) in enumerate(manifest["databases"].items()):
            show(service, number, len(manifest["databases"]))
            files.put_back(config.database_url(service), directory / one["file"])
        for inner in files.state_files(directory / _STATE):
            if with_host or inner.parts[0] not in files.HOST:
                files.copy(directory / _STATE / inner, config.state / inner)


def _outer(directory: Path) -> dict[str, Any]:
    """The manifest that can be read without a passphrase; `encrypted` says whether one is needed."""
    try:
        manifest: dict[str, Any] = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise StartError(f"{directory} has no {MANIFEST}: it is no backup, or one that was not finished") from error
    except ValueError as error:
        raise StartError(f"{directory / MANIFEST} cannot be read: {error}") from error
    return {"encrypted": False} | manifest  # releases before did not say


def _read(directory: Path) -> dict[str, Any]:
    """Raises `StartError` for what is no whole backup."""
    manifest = _outer(directory)
    for service, one in manifest["databases"].items():
        path = directory / one["file"]
        if not path.is_file() or files.digest(path) != one["sha256"]:
            raise StartError(f"{path} is not what was backed up of {service}; take another backup")
        if one["revision"] is not None and one["revision"] > migrations.head_revision(service):
            raise StartError(
                f"the backup of {service} is at revision {one['revision']}, this program knows "
                f"{migrations.head_revision(service)}: use the program that made it, moorage {manifest['moorage']}, or a newer one"
            )
    return manifest


def _say(manifest: dict[str, Any], *, as_json: bool, what: str) -> None:
    if as_json:
        click.echo(json.dumps(manifest, indent=2))
        return
    rows = table("database", "schema", "bytes", "sha256", right=("bytes",))
    for service, one in manifest["databases"].items():
        rows.add_row(service, one["revision"] or "-", f"{one['bytes']:,}", f"{one['sha256'][:16]}...")
    console().print(rows)
    console().print(what, soft_wrap=True)
    if manifest["encrypted"]:
        console().print("It is encrypted: without the passphrase nobody can read it.", soft_wrap=True)
    else:
        console().print(
            "It is not encrypted: whoever reads it has all keys and passwords of the plane. --encrypt makes one that is.",
            soft_wrap=True,
        )
