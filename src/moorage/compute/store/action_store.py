"""Actions on servers and their events in SQL, as ``os-instance-actions`` shows them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, insert, select, update

from moorage.compute.model.servers import Action, ActionEvent
from moorage.compute.store.tables import action_events, actions
from moorage.db.engine import ListStatement, keys_by_value
from moorage.db.types import ResultRow

#: MariaDB's TEXT holds 65,535 bytes; readers need less.
MAX_DETAILS = 8192

_INSERT = insert(actions)
_OF_SERVER = select(actions).where(actions.c.server_id == bindparam("of_server")).order_by(actions.c.number.desc())
_OF_REQUEST = _OF_SERVER.where(actions.c.request_id == bindparam("of_request"))
_TOUCH = ListStatement(
    actions.c.id, update(actions).values(updated_at=bindparam("now", type_=actions.c.updated_at.type)).where
)
_TOUCH_FAILED = ListStatement(
    actions.c.id,
    update(actions).values(updated_at=bindparam("now", type_=actions.c.updated_at.type), message="Error").where,
)
_EVENTS = (
    select(action_events).where(action_events.c.action_id == bindparam("of_action")).order_by(action_events.c.number)
)
_EVENT = _EVENTS.where(action_events.c.name == bindparam("of_name"))
_EVENT_INSERT = insert(action_events)
#: Ends the events ``of_name`` of the actions ``ids``.
_EVENT_FINISH = ListStatement(
    action_events.c.action_id,
    update(action_events)
    .where(action_events.c.name == bindparam("of_name"))
    .values(
        finished_at=bindparam("now", type_=action_events.c.finished_at.type),
        result=bindparam("outcome"),
        details=bindparam("why"),
    )
    .where,
)
_AMONG = ListStatement(
    action_events.c.action_id,
    select(action_events.c.action_id, action_events.c.name)
    .where(action_events.c.name.in_((bindparam("first"), bindparam("second"))))
    .where,
)


def begin_action(connection: Connection, action: Action) -> None:
    """Inserts the action; its `events` are not stored here (see `begin_event`)."""
    connection.execute(_INSERT, _values(action))


def begin_actions(connection: Connection, actions: Sequence[Action], event: str) -> None:
    """Inserts new actions, each with its first event, which starts with it."""
    connection.execute(_INSERT, [_values(action) for action in actions])
    events = [
        {"action_id": action.id, "name": event, "host": None, "started_at": action.started_at} for action in actions
    ]
    connection.execute(_EVENT_INSERT, events)


def _values(action: Action) -> dict[str, object]:
    return {
        "id": action.id, "server_id": action.server_id, "request_id": action.request_id, "name": action.name,
        "user_id": action.user_id, "project_id": action.project_id, "started_at": action.started_at,
        "updated_at": action.updated_at, "message": action.message,
    }  # fmt: skip


def begin_event(connection: Connection, action_id: str, name: str, host: str | None, now: datetime) -> None:
    """Begins an event of an action. Does nothing if it exists, because a job that runs again begins it twice."""
    if connection.execute(_EVENT, {"of_action": action_id, "of_name": name}).one_or_none() is None:
        connection.execute(_EVENT_INSERT, {"action_id": action_id, "name": name, "host": host, "started_at": now})


class EndedEvent(NamedTuple):
    """The end of an event of an action; with `error`, the action has failed."""

    action_id: str
    name: str
    error: str | None = None


def finish_event(connection: Connection, action_id: str, name: str, now: datetime, *, error: str | None = None) -> None:
    finish_events(connection, [EndedEvent(action_id, name, error)], now)


def finish_events(connection: Connection, ended: Sequence[EndedEvent], now: datetime) -> None:
    """Ends events of different actions; inserts missing events. Those with equal results share a statement."""
    for (name, error), ids in keys_by_value((one.action_id, (one.name, one.error)) for one in ended):
        outcome, why = ("Success", None) if error is None else ("Error", error[:MAX_DETAILS])
        finish, values = _EVENT_FINISH.on(connection), {"of_name": name, "now": now, "outcome": outcome, "why": why}
        if connection.execute(finish, {"ids": ids, **values}).rowcount < len(ids):
            for action_id in ids:
                begin_event(connection, action_id, name, None, now)
            connection.execute(finish, {"ids": ids, **values})
        touch = _TOUCH if error is None else _TOUCH_FAILED
        connection.execute(touch.on(connection), {"ids": ids, "now": now})


def begin_next_events(connection: Connection, hosts: Mapping[str, str], ended: str, begun: str, now: datetime) -> None:
    """Ends event `ended` of several actions with success, and begins event `begun` on their hosts. `hosts`: {action id:
    host}.

    Equal to `finish_event` and `begin_event` for each action, in a few statements for all.
    """
    every: dict[str, object] = {"ids": list(hosts)}
    among = connection.execute(_AMONG.on(connection), every | {"first": ended, "second": begun})
    there = {(row.action_id, row.name) for row in among}
    events = [
        {"action_id": action_id, "name": name, "host": host, "started_at": now}
        for action_id, at in hosts.items()
        for name, host in ((ended, None), (begun, at))
        if (action_id, name) not in there
    ]
    if events:
        connection.execute(_EVENT_INSERT, events)
    success = {"of_name": ended, "now": now, "outcome": "Success", "why": None}
    connection.execute(_EVENT_FINISH.on(connection), every | success)
    connection.execute(_TOUCH.on(connection), every | {"now": now})


def actions_of(connection: Connection, server_id: str) -> list[Action]:
    """Newest first, without events."""
    return [_action(row, ()) for row in connection.execute(_OF_SERVER, {"of_server": server_id})]


def action(connection: Connection, server_id: str, request_id: str) -> Action | None:
    row = connection.execute(_OF_REQUEST, {"of_server": server_id, "of_request": request_id}).first()
    if row is None:
        return None
    events = connection.execute(_EVENTS, {"of_action": row.id})
    return _action(
        row,
        tuple(
            ActionEvent(event.name, event.host, event.started_at, event.finished_at, event.result, event.details)
            for event in events
        ),
    )


def _action(row: ResultRow, events: tuple[ActionEvent, ...]) -> Action:
    return Action(
        row.id, row.server_id, row.request_id, row.name, row.user_id, row.project_id, row.started_at, row.updated_at,
        row.message, events,
    )  # fmt: skip
