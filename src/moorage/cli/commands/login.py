"""`moorage login`: sign in with the cloud's OpenID provider, without a browser on this machine."""

import json
import os
import shlex
import time
from pathlib import Path
from typing import Any

import click
import orjson

from moorage.cli.output import json_option, printable
from moorage.core.errors import Invalid, NotFound, RemoteError, StartError, Unauthorized, Unavailable
from moorage.identity.oidc.settings import is_safe_url
from moorage.wire.client import decode_body, error_of_response
from moorage.wire.transports import ClientResponse, SocketTransport

_PATH = "/identity/moorage/v1/oidc"


@click.command()
@click.argument("url")
@click.option("--project", default="", help="Name of the project. If empty, the first one that the rules give you.")
@click.option(
    "--ca-file", type=click.Path(path_type=Path), help="PEM file of the authority that issued the certificates."
)
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path),
    help="File to write, for you alone (mode 0600). If empty, standard output.",
)  # fmt: skip
@json_option
@click.option("--plain-http", is_flag=True, help="Allow an address without TLS on another machine.")
def login(
    url: str, project: str, ca_file: Path | None, output: Path | None, *, as_json: bool, plain_http: bool
) -> None:
    """Sign in at the cloud at URL with its OpenID provider, and print the OS_* variables for the openstack clients.

    Shows an address and a code; open the address in a browser on any machine and enter the code. Use it as:
    eval "$(moorage login https://cloud.example.org)".
    """
    if not is_safe_url(url) and not (plain_http and url.startswith("http://")):
        raise StartError(
            f"{printable(url)} is not a URL with https: everyone on the way could read the token and act as you. Give "
            "https://cloud.example.org, or add --plain-http on a network that you trust"
        )
    url = url.rstrip("/")
    cloud = SocketTransport(url, timeout_s=30.0, ca_file=ca_file)
    provider = _provider_of(cloud, url)
    token, document = _exchange(cloud, {"id_token": _id_token(provider, ca_file)})
    if project:
        token, document = _in_project(cloud, token, project, document)
    if "project" not in document:
        raise Invalid(f"you have roles in several projects; name one with --project, as of: {_names(cloud, token)}")
    variables = _variables(url, token, document, ca_file)
    _write(json.dumps(variables, indent=2) + "\n" if as_json else _exports(variables, document), output)


def _provider_of(cloud: SocketTransport, url: str) -> dict[str, Any]:
    answer = cloud.send("GET", _PATH, {"accept": "application/json"})
    if answer.status == 404:
        raise NotFound(f"{url} has no OpenID provider, or is no Moorage; ask its administrator, or use a password")
    provider: dict[str, Any] = _checked(answer)["provider"]
    if not provider["device_client_id"]:
        raise NotFound(
            f"{url} lets nobody sign in on the command line ([oidc] device_client_id is not set); sign in at its "
            "dashboard"
        )
    return provider


def _id_token(provider: dict[str, Any], ca_file: Path | None) -> str:
    """Lets the person sign in at the provider. Raises `Unauthorized`, `Unavailable`, `StartError`."""
    try:
        from moorage.identity.oidc.device_login import begin_device_login, wait_for_id_token
        from moorage.identity.oidc.provider import metadata_of, metadata_url
    except ImportError as error:
        raise StartError(f"{error.name} is not installed: pip install 'moorage[oidc]'") from error
    from moorage.identity.oidc.provider_http import ProviderHttp

    issuer, client_id = str(provider["issuer"]), str(provider["device_client_id"])
    if not is_safe_url(issuer):
        raise Unavailable(f"the cloud names the provider {printable(issuer)}, which is not a URL with https")
    http = ProviderHttp(30.0, ca_file)
    metadata = metadata_of(http.get_json(metadata_url(issuer)), issuer)
    begun = begin_device_login(http, metadata, client_id, str(provider["scopes"]))
    click.echo(f"Open   {printable(begun.verification_uri)}\nenter  {printable(begun.user_code)}", err=True)
    if begun.complete_uri:
        click.echo(f"or open {printable(begun.complete_uri)}", err=True)
    click.echo(f"Waiting for you, {begun.expires_in_s:.0f} s at most ...", err=True)
    return wait_for_id_token(http, metadata, client_id, begun, sleep=time.sleep, monotonic=time.monotonic)


def _exchange(cloud: SocketTransport, body: dict[str, str]) -> tuple[str, dict[str, Any]]:
    """(token, its document) for an ID token."""
    return _token(cloud.send("POST", f"{_PATH}/id_tokens?nocatalog", _JSON, orjson.dumps(body)))


def _in_project(
    cloud: SocketTransport, token: str, project: str, document: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    if document.get("project", {}).get("name") == project:
        return token, document
    scope = {"project": {"name": project, "domain": {"id": "default"}}}
    auth = {"auth": {"identity": {"methods": ["token"], "token": {"id": token}}, "scope": scope}}
    try:
        return _token(cloud.send("POST", "/identity/v3/auth/tokens?nocatalog", _JSON, orjson.dumps(auth)))
    except Unauthorized as error:
        raise Unauthorized(f"{error.message}; your projects: {_names(cloud, token)}") from error


def _names(cloud: SocketTransport, token: str) -> str:
    answer = cloud.send("GET", "/identity/v3/auth/projects", {**_JSON, "x-auth-token": token})
    return ", ".join(sorted(row["name"] for row in _checked(answer)["projects"])) or "none"


_JSON = {"accept": "application/json", "content-type": "application/json"}


def _token(answer: ClientResponse) -> tuple[str, dict[str, Any]]:
    document: dict[str, Any] = _checked(answer)["token"]
    return answer.headers.get("x-subject-token", ""), document


def _checked(answer: ClientResponse) -> Any:
    if 200 <= answer.status < 300:
        return decode_body(answer)
    message = error_of_response(answer)[0]
    if answer.status == 401:
        raise Unauthorized(message)
    raise RemoteError(f"the cloud answered {answer.status}: {message}", status=answer.status)


def _variables(url: str, token: str, document: dict[str, Any], ca_file: Path | None) -> dict[str, str]:
    variables = {
        "OS_AUTH_TYPE": "v3token",
        "OS_AUTH_URL": f"{url}/identity/v3",
        "OS_TOKEN": token,
        "OS_PROJECT_ID": document["project"]["id"],
        "OS_IDENTITY_API_VERSION": "3",
    }
    return variables if ca_file is None else variables | {"OS_CACERT": str(ca_file.resolve())}


#: Those of an earlier `moorage env` or openrc, which would contradict the token.
_OTHERS = (
    "OS_USERNAME", "OS_PASSWORD", "OS_USER_DOMAIN_ID", "OS_USER_DOMAIN_NAME", "OS_PROJECT_NAME",
    "OS_PROJECT_DOMAIN_ID", "OS_PROJECT_DOMAIN_NAME", "OS_CLOUD",
)  # fmt: skip


def _exports(variables: dict[str, str], document: dict[str, Any]) -> str:
    lines = [f"unset {' '.join(_OTHERS)}"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    name, project = printable(document["user"]["name"]), printable(document["project"]["name"])
    lines.append(f"# {name} in the project {project}, until {document['expires_at']}")
    return "\n".join(lines) + "\n"


def _write(text: str, path: Path | None) -> None:
    if path is None:
        click.echo(text, nl=False)
        return
    # A new file, put in place at once: nobody else can have it open, and its mode is right from the start.
    part = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    part.rename(path)
    click.echo(f"Wrote {printable(str(path))}; use it as: . {shlex.quote(str(path))}", err=True)
