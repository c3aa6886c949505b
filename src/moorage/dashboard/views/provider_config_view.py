"""A host agent's answer about its provider configuration: changes, affected consumers and files. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moorage.dashboard.views.tables import TableColumn

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ConfigHost:
    """A row of the table from which a host is chosen."""

    name: str
    state: str
    status: str
    kind: str


HOST_COLUMNS: Sequence[TableColumn[ConfigHost]] = (
    TableColumn("name", "Host", lambda row: row.name),
    TableColumn("state", "Agent", lambda row: row.state),
    TableColumn("status", "Scheduling", lambda row: row.status),
    TableColumn("kind", "Hypervisor", lambda row: row.kind),
)


def config_host(hypervisor: Document) -> ConfigHost:
    """From compute's ``/os-hypervisors/detail``."""
    return ConfigHost(
        hypervisor["hypervisor_hostname"], hypervisor["state"], hypervisor["status"],
        hypervisor["hypervisor_type"],
    )  # fmt: skip


#: Default values, which are not shown.
_USUAL = {"reserved": 0, "min_unit": 1, "max_unit": 2**31 - 1, "step_size": 1, "allocation_ratio": 1.0}


@dataclass(frozen=True, slots=True)
class AffectedConsumer:
    consumer: str
    server: str  #: server name; empty for other consumers
    amount: int


@dataclass(frozen=True, slots=True)
class ProviderChangeRow:
    what: str
    before: str
    after: str
    note: str = ""  #: the effect on existing allocations
    users: tuple[AffectedConsumer, ...] = ()


@dataclass(frozen=True, slots=True)
class ChangedProvider:
    uuid: str
    name: str
    changes: tuple[ProviderChangeRow, ...]


@dataclass(frozen=True, slots=True)
class FileSet:
    """Files by name, in order, and the time since which they are in effect."""

    taken_at: str
    files: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class AgentAnswer:
    """`is_waiting`: the agent has not answered. `error`: reasons of a rejection. `files`: the form's contents."""

    order: str
    what: str
    is_waiting: bool
    error: tuple[str, ...] = ()
    changed: tuple[ChangedProvider, ...] | None = None
    warnings: tuple[str, ...] = ()
    directory: str = ""
    refused: str = ""  #: why the current files on the host are not in effect
    in_force: FileSet | None = None
    before: FileSet | None = None
    files: tuple[tuple[str, str], ...] = ()


def agent_answer(order: Document) -> AgentAnswer:
    sent = tuple(sorted(order["files"].items()))
    if order["state"] == "waiting":
        return AgentAnswer(order["id"], order["do"], is_waiting=True, files=sent)
    result = order["result"]
    if order["state"] == "failed":
        error = str(result.get("error") or "the host reported no reason")
        return AgentAnswer(order["id"], order["do"], is_waiting=False, error=tuple(error.splitlines()), files=sent)
    state, outcome = result["state"], result["outcome"]
    in_force = _file_set(state["in_force"])
    return AgentAnswer(
        order["id"], order["do"], is_waiting=False,
        changed=None if outcome is None else tuple(_provider(one) for one in outcome["providers"]),
        warnings=() if outcome is None else tuple(outcome["warnings"]),
        directory=state["directory"], refused=state["refused"] or "",
        in_force=in_force, before=_file_set(state["before"]),
        files=sent if order["do"] != "show" else in_force.files if in_force else (),
    )  # fmt: skip


def _file_set(document: Document | None) -> FileSet | None:
    if document is None:
        return None
    return FileSet(document["taken_at"][:19].replace("T", " "), tuple(sorted(document["files"].items())))


def _provider(one: Document) -> ChangedProvider:
    changes = []
    if one["is_created"]:
        changes.append(ProviderChangeRow("the provider is created", "", ""))
    if one["is_removed"]:
        changes.append(ProviderChangeRow("the provider is removed", "", ""))
    changes += [_class(row) for row in one["classes"]]
    changes += [ProviderChangeRow(f"add trait {trait}", "", "") for trait in one["traits_added"]]
    changes += [ProviderChangeRow(f"remove trait {trait}", "", "") for trait in one["traits_removed"]]
    return ChangedProvider(one["uuid"], one["name"], tuple(changes))


def _class(row: Document) -> ProviderChangeRow:
    users = tuple(AffectedConsumer(one["consumer"], one["server"] or "", one["amount"]) for one in row["users"])
    note = ""
    if users:
        stays = (
            "no new allocations; existing ones stay until released"
            if row["how"] == "close"
            else "existing allocations stay"
        )
        note = f"{row['used']:,} in use; {stays}"
    return ProviderChangeRow(
        f"{row['how']} {row['name']}", _amounts(row["before"]), _amounts(row["after"]), note, users
    )


def _amounts(inventory: Document | None) -> str:
    if inventory is None:
        return "none"
    others = [f"{name} {inventory[name]}" for name, usual in _USUAL.items() if inventory[name] != usual]
    return ", ".join([f"total {inventory['total']:,}", *others])
