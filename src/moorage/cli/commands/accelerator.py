"""`moorage accelerator`: the history of devices, and the end of a quarantine; `moorage bitstream` signs bitstreams."""

import hashlib
import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import orjson

from moorage.accelerator.client import AcceleratorClient, HistoryDocument
from moorage.accelerator.host.signatures import is_key_name, require_cryptography, sign_manifest
from moorage.accelerator.model.bitstream import (
    FUNCTION_ID,
    FUNCTION_NAME,
    MANIFEST,
    MANIFEST_SIGNATURE,
    REGION,
    Manifest,
    encode_manifest,
)
from moorage.accelerator.model.device_history import DeviceEvent
from moorage.cli.output import json_option, printable
from moorage.cli.services import endpoints
from moorage.cli.state import config_option
from moorage.core.errors import Invalid, StartError
from moorage.core.ids import is_uuid

#: Records per request.
PAGE = 500


@click.group()
def accelerator() -> None:
    """Show the history of accelerators, and release them from quarantine."""


@accelerator.command()
@click.argument("device", required=False)
@config_option
@click.option("--host", help="Only devices of this host.")
@click.option("--address", metavar="PCI", help="Only the card at this address: 0000:3b:00.0.")
@click.option("--handle", metavar="PCI", help="Only this attach handle: 0000:3b:00.1.")
@click.option("--instance", metavar="UUID", help="Only events for this server.")
@click.option("--project", metavar="ID", help="Only events for this project.")
@click.option("--event", type=click.Choice([event.value for event in DeviceEvent]), help="Only this kind of event.")
@click.option("--since", metavar="TIME", help="Events since this time: 2026-03-01T09:30:00Z.")
@click.option("--until", metavar="TIME", help="Events before this time.")
@click.option("--json", "as_json", is_flag=True, help="Print records as JSON, one per line.")
def history(config_path: Path | None, *, as_json: bool, **wanted: str | None) -> None:
    """Show the events of devices, oldest first: programmed, attached, detached, cleaned, quarantined, released.

    DEVICE is the UUID of a device. For a device that no longer exists, use --host and --address. Uses the services of
    OS_AUTH_URL, or of the plane that --config names.
    """
    client = _client(config_path)
    for record in _records(client, wanted):
        click.echo(orjson.dumps(record) if as_json else _said(record))


@accelerator.command()
@click.argument("host")
@click.argument("handle")
@config_option
@click.option("--reason", required=True, metavar="TEXT", help="Reason, for the device history.")
@click.option("--already-clean", is_flag=True, help="Do not clean it: you vouch that nothing of its last user is left.")
@json_option
def release(
    config_path: Path | None, host: str, handle: str, reason: str, *, already_clean: bool, as_json: bool
) -> None:
    """End the quarantine of the attach handle HANDLE of HOST: the host cleans it again and offers it.

    If cleaning fails again, the handle stays quarantined. The history shows why it is quarantined: moorage accelerator
    history --host HOST --handle HANDLE.
    """
    if not reason.strip():
        raise Invalid("--reason is empty; write why the handle may be used again")
    state = _client(config_path).release_handle(host, handle, reason, is_clean=already_clean)
    if as_json:
        click.echo(json.dumps({"host": host, "handle": handle, "state": state}))
        return
    click.echo(f"{handle} of {host} is {state}.")


def _client(config_path: Path | None) -> AcceleratorClient:
    client = endpoints(config_path).accelerator
    if client is None:
        raise StartError("there is no accelerator service: neither in the catalogue nor in the configuration")
    return client


def _records(client: AcceleratorClient, wanted: dict[str, str | None]) -> Iterator[HistoryDocument]:
    after = None
    while True:
        page = client.history(**wanted, after=after, limit=PAGE)
        yield from page["records"]
        after = page["next"]
        if after is None:
            return


def _said(record: HistoryDocument) -> str:
    """Time, event and place; on further lines the user, the image and the reason."""
    place = f"{record['hostname']} {record['handle'] or record['deployable']}".strip()
    failed = "" if record["result"] == "done" else " failed"
    lines = [f"{record['at'][:19]}Z  {record['event']}{failed}  {place}"]
    named = ("server", record["instance_uuid"]), ("project", record["project_id"]), ("user", record["user_id"])
    if whom := ", ".join(f"{word} {value}" for word, value in named if value):
        lines.append(f"    for {whom}")
    if record["sha512"]:
        lines.append(f"    image {record['image_id'] or 'unknown'}, sha512 {record['sha512'][:16]}...")
    elif record["event"] == DeviceEvent.PROGRAM:
        lines.append("    blank bitstream")
    if record["reason"]:
        lines.append(f"    {record['reason']}")
    return "\n".join(map(printable, lines))


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group()
def bitstream() -> None:
    """Sign bitstreams."""


@bitstream.command()
@click.argument("file", type=_FILE)
@click.option("--key", "key_path", type=_FILE, required=True, help="The private key, PEM.")
@click.option("--key-name", required=True, help="Name of the public key on the hosts: <name>.pem in signature_keys.")
@click.option("--region-uuid", required=True, help="Region type that the bitstream was built for.")
@click.option("--function-uuid", multiple=True, help="UUID of its function; may be repeated.")
@click.option("--function-name", multiple=True, help="Name of its function; the nth name belongs to the nth UUID.")
@click.option("--vendor", help="Restrict it to cards of this vendor.")
@click.option("--board", help="Restrict it to this board.")
@click.option("--shell-id", help="Restrict it to cards with this shell.")
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
    """Sign FILE together with its intended use, and print the image properties to set.

    Use it as: `moorage bitstream sign ... | xargs openstack image set IMAGE`.
    """
    require_cryptography()
    if not is_key_name(key_name):
        raise Invalid(f"--key-name {key_name[:80]!r}: a key name has at most 64 letters, digits, - and _")
    for option, values in (("--region-uuid", (region_uuid,)), ("--function-uuid", function_uuid)):
        if wrong := [value for value in values if not is_uuid(value)]:
            raise Invalid(f"{option} {wrong[0]!r} is not a UUID")
    if not (function_uuid or function_name):
        raise Invalid("name the function of the bitstream: --function-uuid, --function-name, or both")
    if wrong := [value for value in function_name if "," in value]:
        raise Invalid(f"--function-name {wrong[0]!r}: a name cannot contain a comma")
    given = {REGION: region_uuid, FUNCTION_ID: ",".join(function_uuid), FUNCTION_NAME: ",".join(function_name), **card}
    described = {name: value for name, value in given.items() if value}
    with file.open("rb") as data:
        digest = hashlib.file_digest(data, "sha512").hexdigest()
    text = encode_manifest(Manifest(key_name, digest, described))
    properties = described | {MANIFEST: text, MANIFEST_SIGNATURE: sign_manifest(text, _private_key(key_path))}
    if as_json:
        click.echo(json.dumps(properties, indent=2))
        return
    for name, value in properties.items():
        click.echo(f"--property {shlex.quote(f'{name}={value}')}")


def _private_key(path: Path) -> object:
    """Loads the key; prompts for the passphrase of an encrypted one. Raises `Invalid`."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    pem = path.read_bytes()
    try:
        try:
            return load_pem_private_key(pem, None)
        except TypeError:  # raised for an encrypted key
            passphrase: str = click.prompt(f"Passphrase of {path}", hide_input=True, err=True)
            return load_pem_private_key(pem, passphrase.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise Invalid(f"{path} is not a private key in PEM format, or the passphrase is wrong") from error
