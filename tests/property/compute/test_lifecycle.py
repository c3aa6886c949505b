"""After any sequence of users' requests and host reports, a server is in no state that it cannot leave."""

from hypothesis import given
from hypothesis import strategies as st

from moorage.compute.model import lifecycle
from moorage.compute.model.lifecycle import OperationOutcome, ServerSituation
from moorage.compute.model.servers import TaskState, VmState
from moorage.core.caller import Caller
from moorage.core.errors import Conflict

CALLER = Caller("alice", "red", frozenset({"member"}))
BEGUN = ServerSituation("u", VmState.BUILDING, TaskState.SPAWNING, "compute-1")

#: (operation, whether its host reports success); operations that the table refuses are skipped.
steps = st.lists(st.tuples(st.sampled_from(lifecycle.OPERATIONS), st.booleans()), max_size=30)
WITH_A_TASK = [one for one in lifecycle.OPERATIONS if one.task is not None]


def moved(server: ServerSituation, outcome: OperationOutcome) -> ServerSituation:
    return ServerSituation(server.id, outcome.vm_state, outcome.task_state, server.host)


def walk(chosen) -> ServerSituation:
    """The server after its build and after `chosen`, each reported before the next."""
    server = moved(BEGUN, lifecycle.after_report(lifecycle.CREATE, BEGUN, succeeded=True))
    for operation, succeeds in chosen:
        try:
            lifecycle.check(operation, server, CALLER)
        except Conflict:
            continue
        busy = ServerSituation(server.id, server.vm_state, operation.task, server.host)
        outcome = lifecycle.after_report(operation, busy, succeeded=succeeds)
        if operation.task is None:
            assert outcome is None
            continue
        assert outcome is not None
        if operation is lifecycle.DELETE and succeeds:
            return ServerSituation(server.id, VmState.DELETED, None, server.host)
        server = moved(server, outcome)
    return server


@given(steps)
def test_a_server_has_no_task_state_after_its_host_has_reported(chosen):
    assert walk(chosen).task_state is None


@given(steps)
def test_every_allowed_operation_leads_to_a_state_in_the_table_of_states(chosen):
    server = walk(chosen)
    for operation in lifecycle.OPERATIONS:
        if server.vm_state in operation.allowed and operation is not lifecycle.CREATE:
            after = operation.after(server.vm_state)
            assert after in lifecycle.SERVER_STATES.allowed[server.vm_state]


@given(steps)
def test_a_server_in_any_state_can_be_deleted_and_can_become_active_again(chosen):
    server = walk(chosen)
    if server.vm_state is VmState.DELETED:
        return
    lifecycle.check(lifecycle.DELETE, server, CALLER)
    ways = [one for one in lifecycle.OPERATIONS if server.vm_state in one.allowed and one.ends is VmState.ACTIVE]
    assert ways


@given(st.sampled_from(list(VmState)), st.sampled_from(WITH_A_TASK), st.data())
def test_the_report_of_an_operation_ends_its_task_in_every_state(vm_state, operation, data):
    """Servers without a host get no report; the builder ends their task."""
    if vm_state is VmState.DELETED:
        return
    busy = ServerSituation("u", vm_state, operation.task, "compute-1")
    outcome = lifecycle.after_report(operation, busy, succeeded=data.draw(st.booleans()))
    assert outcome is not None
    assert outcome.task_state is None or operation is lifecycle.DELETE
