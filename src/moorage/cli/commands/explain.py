"""`moorage explain`: why hosts fit a request or not, and the smallest change that would make it fit."""

import dataclasses
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import parse_qsl

import click
from rich.console import Console

from moorage.cli.commands.explain_server import server
from moorage.cli.output import console, table
from moorage.cli.services import Endpoints, endpoints
from moorage.cli.state import config_option
from moorage.core.errors import Invalid, NotFound, RemoteError
from moorage.placement.client.placement_client import Explanation
from moorage.scheduler.candidate_query import candidate_query
from moorage.scheduler.flavor_resources import FlavorFields, request_for
from moorage.wire.client import with_query

Query = Sequence[tuple[str, str]]


class _QueryOrServer(click.Group):
    """Handles both `moorage explain QUERY` and `moorage explain server ...`. No query is just the word ``server``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in self.commands:
            args = ["query", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_QueryOrServer, add_help_option=False)
def explain() -> None:
    """Explain why hosts fit a request or not."""


@explain.command("query", hidden=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("query", required=False)
@config_option
@click.option("--flavor", metavar="NAME", help="Explain a server of this flavor: name or ID.")
@click.option("--json", "as_json", is_flag=True, help="Print the explanation as JSON.")
def explain_query(query: str | None, config_path: Path | None, flavor: str | None, *, as_json: bool) -> None:
    """Show how many hosts each constraint of QUERY removes, the closest hosts, and what would make the query fit.

    `moorage explain server` does the same for a server, including everything the scheduler adds to its flavor.

    QUERY is the query of GET /allocation_candidates, in quotes: "resources=VCPU:4,CUSTOM_GOLD:1&required=CUSTOM_SSD".
    Uses the services of OS_AUTH_URL, or of the plane that --config names.
    """
    if (query is None) == (flavor is None):
        raise click.UsageError('give either a query, like "resources=VCPU:4,MEMORY_MB:1024", or --flavor NAME')
    wanted = None if query is None else query_pairs(query)
    services = endpoints(config_path)
    if wanted is None:
        wanted = _of_flavor(services, flavor or "")
    explanation = _explanation(services, wanted)
    if as_json:
        click.echo(json.dumps({"query": as_text(wanted), **dataclasses.asdict(explanation)}, indent=2))
    else:
        print_explanation(console(), wanted, explanation)


explain.add_command(server)


def query_pairs(query: str) -> Query:
    """[(name, value)] of the query. Raises `Invalid`, naming the part that is not ``name=value``."""
    text = query.rpartition("?")[2]
    if not text:
        raise Invalid('the query is empty; enter one such as "resources=VCPU:4,MEMORY_MB:1024"')
    for part in text.split("&"):
        name, equals, _ = part.partition("=")
        if not name or not equals:
            raise Invalid(
                f"the query has {part!r}, which is not name=value; use a form such as "
                '"resources=VCPU:4,MEMORY_MB:1024&required=CUSTOM_SSD", in quotes'
            )
    return parse_qsl(text, keep_blank_values=True)


def as_text(query: Query) -> str:
    return with_query("", query).removeprefix("?")


def _of_flavor(services: Endpoints, name: str) -> Query:
    compute = services.compute
    if compute is None:
        raise NotFound("there is no compute service to look up the flavor; give the query instead")
    flavor = compute.flavor(name)
    if flavor is None:
        raise NotFound(f"no flavor {name!r} found; run `openstack flavor list --all` to see all flavors")
    return candidate_query(
        request_for(
            FlavorFields(
                flavor.vcpus, flavor.ram_mb, flavor.disk_gb, flavor.ephemeral_gb, flavor.swap_mb, flavor.extra_specs
            )
        )
    )


def _explanation(services: Endpoints, query: Query) -> Explanation:
    try:
        return services.placement.explain(query)
    except NotFound as error:
        raise NotFound("this Placement has no explanations: it is OpenStack's own, or an older Moorage") from error
    except RemoteError as error:
        if error.status != 400:
            raise
        detail = " ".join(str(error.fields.get("detail", error.message)).split())
        _, _, reason = detail.partition("otherwise incorrect. ")
        raise Invalid(f"Placement rejects the query {as_text(query)}: {reason or detail}") from error


def print_explanation(out: Console, query: Query, explanation: Explanation) -> None:
    out.print(as_text(query), style="bold")
    out.print("No host fits." if not explanation.candidates else explanation.text)
    if explanation.steps:
        out.print()
        rows = table("constraint", "hosts", "left", "for example", right=("hosts", "left"))
        for step in explanation.steps:
            rows.add_row(step.constraint, f"{step.before:,}", f"{step.after:,}", "\n".join(step.removed))
        out.print(rows)
    if explanation.closest:
        out.print("\nClosest hosts", style="bold")
        for host in explanation.closest:
            out.print(f"  {host.provider}")
            for lack in host.lacks:
                out.print(f"      {lack}")
    if explanation.change is not None:
        out.print(f"\nSmallest change to fit on {explanation.change.provider}", style="bold")
        for part in explanation.change.parts:
            out.print(f"  {part}")
        out.print(f"  moorage explain {shlex.quote(explanation.change.query)}", soft_wrap=True)
