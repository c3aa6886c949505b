"""The unchanged library os_acc, over a real Unix socket to a real agent with simulated devices."""

import copy
import inspect
import logging
import pickle
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType

import pytest

import os_acc
from moorage.accelerator.host.agent_api import SocketServer, wsgi_app
from moorage.accelerator.model import errors as agent_errors
from moorage.cli.state import open_or_make_config
from moorage.core.clock import SystemClock, VirtualClock
from moorage.core.errors import MoorageError, StartError
from moorage.core.ids import RandomIds, SeededIds
from moorage.wire.transports import InProcessTransport
from moorage.wiring import build_plane
from os_acc import exception
from os_acc.client import SOCKET_VARIABLE, configured
from tests.conftest import START
from tests.unit.accelerator.rig import (
    AES,
    GPU,
    R1,
    TYPE_R1,
    Rig,
    fault,
    fpga,
    gpu,
    in_threads,
    many_gpus,
    new_instance,
    rp,
)


@pytest.fixture
def rig(tmp_path) -> Rig:
    return Rig(tmp_path)


@pytest.fixture
def socket_path(tmp_path):
    return tmp_path / "acc.sock"


@pytest.fixture
def served(rig, socket_path):
    server = SocketServer(wsgi_app(rig.agent, RandomIds()), socket_path)
    server.start()
    os_acc.configure(str(socket_path), contact_timeout_s=0.3)
    yield rig
    server.stop()


def info(uuid=None) -> dict:
    return {"uuid": uuid or new_instance(), "name": "web-1", "project_id": "1" * 32, "image_id": None}


def test_the_three_functions_have_the_signatures_of_the_specification():
    """R12, A17: exactly initialize(), plug(instance_info, selected_rp, flavor_extra_specs), unplug(instance_info)."""
    names = {
        name: list(inspect.signature(getattr(os_acc, name)).parameters) for name in ("initialize", "plug", "unplug")
    }
    assert names == {
        "initialize": [],
        "plug": ["instance_info", "selected_rp", "flavor_extra_specs"],
        "unplug": ["instance_info"],
    }
    assert set(os_acc.__all__) == {*names, "configure", "refers_to_accelerators", "Client", "exception"}


def test_plug_and_unplug_through_the_socket(served):
    """R12, R23, R28, R30, A7: positional and keyword; a list of {"pci_id"}; the number released, then 0."""
    image_id = served.image(region_uuid=TYPE_R1, function_uuid=AES)
    assert os_acc.initialize() is None
    instance = info()
    plugged = os_acc.plug(instance, {"": [rp(R1)]}, fpga(2, bitstream=image_id))
    assert plugged == [{"pci_id": "0000:3b:00.1"}, {"pci_id": "0000:3b:00.2"}]
    again = os_acc.plug(
        flavor_extra_specs=fpga(2, bitstream=image_id), selected_rp={"": [rp(R1)]}, instance_info=instance
    )
    assert again == plugged
    assert os_acc.unplug(instance_info={"uuid": instance["uuid"], "name": "web-1"}) == 2
    assert os_acc.unplug({"uuid": instance["uuid"], "name": "web-1"}) == 0


def test_plug_does_not_change_its_parameters(served):
    """R17: read-only mappings are accepted."""
    given = (info(), {"": [rp(GPU)]}, gpu())
    before = copy.deepcopy(given)
    os_acc.plug(*(MappingProxyType(one) for one in given))
    assert given == before
    frozen = MappingProxyType({"": (rp("0000:65:00.0"),)})
    assert os_acc.plug(MappingProxyType(info()), frozen, MappingProxyType(gpu())) == [{"pci_id": "0000:65:00.0"}]


def test_calls_can_run_in_executors_and_raise_their_errors_through_futures(served):
    """R16: each function in a ThreadPoolExecutor(max_workers=1), several in parallel."""
    served.plug(new_instance(), gpu(), GPU)
    instance = info()

    def run(api, *args):
        with ThreadPoolExecutor(max_workers=1) as executor:
            return executor.submit(api, *args).result()

    answers = in_threads(
        [
            lambda: run(os_acc.initialize),
            lambda: run(os_acc.plug, instance, {"uuid": rp(GPU)}, gpu()),
            lambda: run(os_acc.plug, info(), {"uuid": rp(R1)}, fpga()),
            lambda: run(os_acc.unplug, info()),
        ]
    )
    assert answers[0] is None
    assert isinstance(answers[1], exception.NoCapacity)
    assert (answers[1].instance_uuid, answers[1].retryable) == (instance["uuid"], True)
    assert answers[2:] == [[{"pci_id": "0000:3b:00.1"}], 0]


def test_concurrent_plugs_over_the_socket_never_get_the_same_handle(tmp_path, socket_path):
    """R31: 32 parallel plugs on 16 handles: 16 successes, all distinct, 16 NoCapacity."""
    rig = Rig(tmp_path, devices=many_gpus(16))
    server = SocketServer(wsgi_app(rig.agent, RandomIds()), socket_path)
    server.start()
    os_acc.configure(str(socket_path))
    names = [device.pci_id for device in rig.devices] * 2
    answers = in_threads([lambda name=name: os_acc.plug(info(), {"uuid": rp(name)}, gpu()) for name in names])
    server.stop()
    given = [answer[0]["pci_id"] for answer in answers if isinstance(answer, list)]
    assert len(given) == len(set(given)) == 16
    assert sum(isinstance(answer, exception.NoCapacity) for answer in answers) == 16


def test_the_instance_name_is_in_the_log(served, caplog):
    """R18, R53: of `plug` and of `unplug`, beside the uuid."""
    instance = info()
    with caplog.at_level(logging.INFO, "moorage.accelerator"):
        os_acc.plug(instance, {"uuid": rp(GPU)}, gpu())
        os_acc.unplug(instance)
    named = [
        (row.getMessage(), row.instance, row.instance_name) for row in caplog.records if hasattr(row, "instance_name")
    ]
    assert named == [("plugged", instance["uuid"], "web-1"), ("unplugged", instance["uuid"], "web-1")]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (({"name": "x"}, {"uuid": rp(GPU)}, gpu()), "uuid"),
        ((info(), {}, gpu()), "selected_rp"),
        ((info(), {"uuid": new_instance()}, gpu()), "resource provider"),
        ((info(), {"uuid": rp(GPU)}, {}), "no accelerator"),
        ((info(), {"uuid": rp(GPU)}, {"resources:CUSTOM_ACCELERATOR_GPU": object()}), "JSON cannot represent"),
        ((info(), None, None), "mapping"),
    ],
)
def test_invalid_parameters_are_bad_requests(served, args, words):
    """R15, R18, R19, R21."""
    with pytest.raises(exception.BadRequest, match=words):
        os_acc.plug(*args)
    assert not served.held.handles


def test_each_error_of_the_agent_has_its_exception_class():
    """A16: a full typed tree, each with the instance's uuid and a retryable flag."""
    codes = {
        kind.code
        for kind in vars(agent_errors).values()
        if isinstance(kind, type) and issubclass(kind, MoorageError) and kind.code.startswith("accelerator.")
    }
    assert codes == set(exception.BY_CODE) - {exception.Timeout.code}
    for kind in exception.BY_CODE.values():
        error = pickle.loads(pickle.dumps(kind("what", "who")))
        assert (type(error), str(error), error.instance_uuid) == (kind, "what (instance who)", "who")
        assert error.message == "what"
    assert {kind for kind in exception.BY_CODE.values() if kind.retryable} == {
        exception.CyborgAgentUnavailable,
        exception.Timeout,
        exception.NoCapacity,
        exception.ConflictingBitstreams,
        exception.ProgramFailed,
    }
    assert not exception.OsAccException("what").retryable


@pytest.mark.parametrize(
    ("status", "body", "kind", "message"),
    [
        ("400 Bad Request", b'{"error": {"code": "later", "message": "no"}}', exception.BadRequest, "no"),
        ("500 Oops", b'{"error": {"code": "later", "message": "no"}}', exception.OsAccException, "no"),
        (
            "500 Oops",
            b'{"error": {"code": "accelerator.no_capacity", "message": "full"}}',
            exception.NoCapacity,
            "full",
        ),
        ("502 Bad Gateway", b"<html>", exception.OsAccException, "the accelerator agent answered 502: b'<html>'"),
        ("400 Bad Request", b"[]", exception.BadRequest, "the accelerator agent answered 400: b'[]'"),
    ],
)
def test_an_answer_that_the_library_does_not_know_is_an_error_with_its_text(socket_path, status, body, kind, message):
    """A16, R16: for example of an agent of a later release."""

    def answer(environ, start_response):
        start_response(status, [("content-length", str(len(body)))])
        return [body]

    server = SocketServer(answer, socket_path)
    server.start()
    os_acc.configure(str(socket_path))
    instance = info()
    with pytest.raises(exception.OsAccException) as caught:
        os_acc.unplug(instance)
    server.stop()
    assert (type(caught.value), caught.value.message) == (kind, message)
    assert caught.value.instance_uuid == instance["uuid"]


def test_each_failure_of_plug_and_unplug_raises_its_exception_class(served):
    one = served.image("one", region_uuid=TYPE_R1, function_uuid=AES)
    two = served.image("two", region_uuid=TYPE_R1, function_uuid=AES)
    with pytest.raises(exception.MultipleBitstreams) as caught:
        os_acc.plug(info(), {"uuid": rp(R1)}, fpga(function=AES))
    assert one in caught.value.message
    assert two in caught.value.message
    with pytest.raises(exception.BitstreamNotFound):
        os_acc.plug(info(), {"uuid": rp(R1)}, fpga(function_name="unheard of"))
    served.order(fault("program"))
    with pytest.raises(exception.ProgramFailed):
        os_acc.plug(info(), {"uuid": rp(R1)}, fpga(bitstream=one))
    instance = info()
    os_acc.plug(instance, {"uuid": rp(GPU)}, gpu())
    with pytest.raises(exception.AlreadyPlugged):
        os_acc.plug(instance, {"uuid": rp(R1)}, fpga())
    served.order(fault("clean"))
    with pytest.raises(exception.CleanFailed):
        os_acc.unplug(instance)


def test_a_missing_agent_is_unavailable_within_the_contact_timeout(tmp_path):
    """R14: no agent: CyborgAgentUnavailable, within the configured timeout."""
    os_acc.configure(str(tmp_path / "nobody.sock"), contact_timeout_s=0.3)
    begin = time.monotonic()
    with pytest.raises(exception.CyborgAgentUnavailable):
        os_acc.initialize()
    assert 0.3 <= time.monotonic() - begin < 3
    with pytest.raises(exception.CyborgAgentUnavailable) as caught:
        os_acc.unplug(info())
    assert caught.value.retryable


def test_a_socket_without_an_agent_is_unavailable(socket_path):
    """R12, R14: a killed agent has left the socket file."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(socket_path))
    listener.close()
    os_acc.configure(str(socket_path), contact_timeout_s=0)
    with pytest.raises(exception.CyborgAgentUnavailable):
        os_acc.initialize()


def test_an_agent_that_hangs_is_a_timeout(socket_path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(socket_path))
        listener.listen()
        os_acc.configure(str(socket_path), call_timeout_s=0.2)
        with pytest.raises(exception.Timeout):
            os_acc.plug(info(), {"uuid": rp(GPU)}, gpu())


def test_initialize_waits_until_everything_is_published(rig, socket_path):
    """R13: waits while discovery runs and until traits are published; returns None; a second call is harmless."""
    agent = rig.new_agent()
    server = SocketServer(wsgi_app(agent, RandomIds()), socket_path)
    server.start()
    os_acc.configure(str(socket_path))
    returned = threading.Event()
    answers = []

    def initialize():
        answers.append(os_acc.initialize())
        returned.set()

    threading.Thread(target=initialize, daemon=True).start()
    nodes = agent.nodes()
    assert not returned.wait(0.2)
    agent.published({node.name: rp(node.name) for node in nodes})
    assert returned.wait(10)
    assert answers == [None]
    assert os_acc.initialize() is None
    server.stop()


def test_initialize_times_out_if_the_agent_does_not_become_ready(rig):
    """R13, on a virtual clock."""
    agent = rig.new_agent()

    class WithoutWaiting(InProcessTransport):
        def send(self, method, path, headers, body=None):
            return super().send(method, path.replace("wait_s=5.0", "wait_s=0"), headers, body)

    client = os_acc.Client(WithoutWaiting(wsgi_app(agent, RandomIds())), clock=rig.clock, ready_timeout_s=60)
    begin = rig.clock.now()
    with pytest.raises(exception.Timeout, match="still not ready after 60 s"):
        client.initialize()
    assert 60 <= (rig.clock.now() - begin).total_seconds() < 61


def test_initialize_waits_for_an_agent_that_restarts(rig, socket_path):
    os_acc.configure(str(socket_path), contact_timeout_s=10)
    app = wsgi_app(rig.agent, RandomIds())
    first = SocketServer(app, socket_path)
    first.start()
    os_acc.initialize()
    first.stop()
    second = SocketServer(app, socket_path)
    threading.Timer(0.3, second.start).start()
    os_acc.initialize()
    second.stop()


def test_the_socket_is_accessible_only_to_its_owner_and_replaces_an_old_one(served, socket_path):
    """Its mode is 0600, because every process that can open it can plug devices."""
    assert socket_path.stat().st_mode & 0o777 == 0o600
    again = SocketServer(wsgi_app(served.agent, RandomIds()), socket_path)
    again.start()
    os_acc.initialize()
    again.stop()
    assert not socket_path.exists()


def test_a_path_too_long_for_a_socket_is_a_start_error(rig, tmp_path):
    server = SocketServer(wsgi_app(rig.agent, RandomIds()), tmp_path / ("x" * 120))
    with pytest.raises(StartError, match="too long"):
        server.start()


def test_the_library_works_the_same_with_an_in_process_transport(rig):
    """Only the transport differs, not the client."""
    client = os_acc.Client(InProcessTransport(wsgi_app(rig.agent, RandomIds())), clock=SystemClock())
    client.initialize()
    instance = info()
    assert client.plug(instance, {"uuid": rp(GPU)}, gpu()) == [{"pci_id": GPU}]
    with pytest.raises(exception.NoCapacity):
        client.plug(info(), {"uuid": rp(GPU)}, gpu())
    assert client.unplug(instance) == 1


def test_an_agent_and_a_library_with_default_settings_find_each_other(tmp_path, monkeypatch):
    """R17: the plane is what `moorage up` starts without options; nobody calls `configure`."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv(SOCKET_VARIABLE, raising=False)
    monkeypatch.setattr("os_acc.client._configured", None)
    config = open_or_make_config(None, port=None, clock="adjustable")
    with pytest.raises(exception.CyborgAgentUnavailable, match=r"os-acc\.sock.*OS_ACC_SOCKET"):
        os_acc.configure(contact_timeout_s=0)
        os_acc.initialize()
    os_acc.configure()  # still without a path: before the agent starts
    plane = build_plane(config, clock=VirtualClock(START), ids=SeededIds(1))
    try:
        plane.prepare()
        os_acc.initialize()
        assert os_acc.unplug(info()) == 0
    finally:
        plane.stop()


@pytest.mark.parametrize(
    ("instance", "named"),
    [
        ({"name": "web-1"}, ("?", "web-1")),
        ({"uuid": "nonsense", "name": "web-1"}, ("nonsense", "web-1")),
        ({"uuid": "nonsense", "name": 5}, ("?", "?")),
        ("nonsense", ("?", "?")),
    ],
)
def test_a_refused_plug_and_unplug_log_the_instance_as_far_as_it_is_known(served, caplog, instance, named):
    for call in (lambda: os_acc.plug(instance, {"uuid": rp(GPU)}, gpu()), lambda: os_acc.unplug(instance)):
        caplog.clear()
        with pytest.raises(exception.BadRequest):
            call()
        (record,) = [one for one in caplog.records if one.getMessage().endswith("plug failed")]
        assert (record.instance, record.instance_name) == named


def test_a_failed_plug_and_unplug_log_the_name_of_the_instance(served, caplog):
    """R18, R53: the name is needed for better logging, most of all when something failed."""
    one, other = info(), info() | {"name": "db-2"}
    os_acc.plug(one, {"uuid": rp(GPU)}, gpu())
    with pytest.raises(exception.NoCapacity):
        os_acc.plug(other, {"uuid": rp(GPU)}, gpu())
    served.order(fault("clean"))
    with pytest.raises(exception.CleanFailed):
        os_acc.unplug(one)
    failed = [(row.getMessage(), row.instance, row.instance_name) for row in caplog.records if hasattr(row, "why")]
    assert failed == [("plug failed", other["uuid"], "db-2"), ("unplug failed", one["uuid"], "web-1")]


def test_the_path_of_the_socket_can_be_set_in_the_environment(served, socket_path, monkeypatch):
    monkeypatch.setenv(SOCKET_VARIABLE, str(socket_path))
    monkeypatch.setattr("os_acc.client._configured", None)
    assert configured() is configured()
    os_acc.initialize()


def test_a_released_quarantined_handle_can_be_plugged_again(served):
    instance = info()
    os_acc.plug(instance, {"uuid": rp(GPU)}, gpu())
    served.order(fault("clean", times=1))
    with pytest.raises(exception.CleanFailed):
        os_acc.unplug(instance)
    app = InProcessTransport(wsgi_app(served.agent, RandomIds()))
    assert app.send("POST", f"/v1/handles/{GPU}/release", {}).status == 204
    assert app.send("POST", f"/v1/handles/{GPU}/release", {}).status == 400
    assert app.send("GET", "/v1/ready?wait_s=soon", {}).status == 400
    assert os_acc.plug(info(), {"uuid": rp(GPU)}, gpu()) == [{"pci_id": GPU}]


def test_the_library_can_tell_whether_a_flavor_refers_to_accelerators():
    """R15."""
    assert os_acc.refers_to_accelerators({"resources3:CUSTOM_ACCELERATOR_FPGA": "1"})
    assert not os_acc.refers_to_accelerators({"resources:VCPU": "1"})
