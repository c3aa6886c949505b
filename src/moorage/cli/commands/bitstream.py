"""`moorage bitstream`: what the maker of a bitstream does before it is uploaded. Needs no plane and no configuration."""

import hashlib
import json
import shlex
from pathlib import Path
from typing import Any

import click

from moorage.accelerator.host.signatures import is_key_name, require_cryptography
from moorage.accelerator.host.signatures import sign as signature_of
from moorage.accelerator.model.bitstream import (
    FUNCTION_ID,
    FUNCTION_NAME,
    MANIFEST,
    MANIFEST_SIGNATURE,
    REGION,
    Manifest,
    encode_manifest,
)
from moorage.cli.output import json_option
from moorage.core.errors import Invalid
from moorage.core.ids import is_uuid

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group()
def bitstream() -> None:
    """Sign bitstreams."""


@bitstream.command()
@click.argument("file", type=_FILE)
@click.option("--key", "key_path", type=_FILE, required=True, help="The private key, PEM.")
@click.option("--key-name", required=True, help="What hosts call its public half: <name>.pem in signature_keys.")
@click.option("--region-uuid", required=True, help="Type of the region that it was made for.")
@click.option("--function-uuid", multiple=True, help="What it does; may be given several times.")
@click.option("--function-name", multiple=True, help="The same by name; paired with --function-uuid by place.")
@click.option("--vendor", help="Only for cards of this vendor.")
@click.option("--board", help="Only for this board.")
@click.option("--shell-id", help="Only for cards with this shell.")
@json_option
def sign(
    file: Path,
    key_path: Path,
    key_name: str,
    region_uuid: str,
    function_uuid: tuple[str, ...],
    function_name: tuple[str, ...],
    *,
    as_json: bool,
    **card: str | None,
) -> None:
    """Sign FILE together with what it is for; print the image properties that say so.

    The output is made for `moorage bitstream sign ... | xargs openstack image set IMAGE`.
    """
    require_cryptography()
    if not is_key_name(key_name):
        raise Invalid(f"--key-name {key_name[:80]!r}: a key's name has letters, digits, - and _ only, 64 at most")
    for option, values in (("--region-uuid", (region_uuid,)), ("--function-uuid", function_uuid)):
        if wrong := [value for value in values if not is_uuid(value)]:
            raise Invalid(f"{option} {wrong[0]!r} is no UUID")
    if not (function_uuid or function_name):
        raise Invalid("say what the bitstream does: --function-uuid, --function-name, or both")
    if wrong := [value for value in function_name if "," in value]:
        raise Invalid(f"--function-name {wrong[0]!r}: commas are between names")
    given = {REGION: region_uuid, FUNCTION_ID: ",".join(function_uuid), FUNCTION_NAME: ",".join(function_name), **card}
    described = {name: value for name, value in given.items() if value}
    with file.open("rb") as data:
        digest = hashlib.file_digest(data, "sha512").hexdigest()
    text = encode_manifest(Manifest(key_name, digest, described))
    properties = described | {MANIFEST: text, MANIFEST_SIGNATURE: signature_of(text, _private_key(key_path))}
    if as_json:
        click.echo(json.dumps(properties, indent=2))
        return
    for name, value in properties.items():
        click.echo(f"--property {shlex.quote(f'{name}={value}')}")


def _private_key(path: Path) -> Any:
    """Asks for the passphrase of an encrypted one. Raises `Invalid`."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    pem = path.read_bytes()
    try:
        try:
            return load_pem_private_key(pem, None)
        except TypeError:  # so it says that it is encrypted
            passphrase: str = click.prompt(f"Passphrase of {path}", hide_input=True, err=True)
            return load_pem_private_key(pem, passphrase.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise Invalid(f"{path} is no private key in PEM, or the passphrase is not its own") from error
