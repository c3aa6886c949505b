"""Reports, job results and users' requests in random orders, in virtual time: late, repeated and lost requests, restarts.

A request of the agent may arrive at once, later, twice or never, whatever the agent believes. The service answers none
of them with 5xx, a released instance stays released, and after the next report it knows what the host holds.
"""

import os
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.accelerator.client import AcceleratorClient
from moorage.accelerator.model.errors import NoCapacity
from moorage.agent.jobs.job_runner import AcceleratorRunner
from moorage.agent.jobs.job_task import HostQueue, JobsTask
from moorage.core.clock import VirtualClock
from moorage.core.errors import Unavailable
from moorage.core.ids import SeededIds
from moorage.wire.client import ServiceClient
from moorage.wire.transports import ClientResponse
from tests.plane import Request, Send, Way
from tests.unit.accelerator.rig import HOST, Rig, gpu, many_gpus, rp
from tests.wire.accelerator.conftest import RecordedHints, Token, Wire, process_in
from tests.wire.accelerator.test_binding import CARD

EXAMPLES = 400 if os.environ.get("EXPLORE") else 25
STEPS = 60
CARDS = ["0000:01:00.0", "0000:02:00.0"]


class World:
    """A service, one host with two cards, and a network that delays, repeats and loses the requests of the agent."""

    def __init__(self, directory: Path, process, random: Random) -> None:
        self.random = random
        self.clock = process.clock
        self.way = Way()
        self.way.around = self.carry
        transport = self.way.over(process.transport("/accelerator"))
        self.users = Wire(process.transport("/accelerator"))
        http = ServiceClient(transport, service_type="accelerator", credentials=Token("service"), clock=self.clock)
        self.client = AcceleratorClient(http)
        self.delayed: list[Send] = []
        self.is_calm = True
        self.fate = 1.0  #: of the requests of one step, with their repetitions: a random number
        self.rig = Rig(directory / "host", clock=self.clock, devices=many_gpus(2))
        self.run_agent()
        self.rig.agent.run_once()
        body = [{"name": "card", "groups": [CARD]}]
        assert self.users("POST", "/v2/device_profiles", body=body).status == 201
        #: Instances that requests are bound for; those that the service has forgotten after their release.
        self.bound: set[str] = set()
        self.plugged: set[str] = set()
        self.gone: set[str] = set()
        self.is_calm = False

    def run_agent(self) -> None:
        self.rig.agent._reports = self.client
        queue = HostQueue(HOST, self.client, poll_period_s=1, what="accelerator jobs")
        self.jobs = JobsTask(queue, 1, AcceleratorRunner(self.rig.agent, keep_alive_period_s=10), self.clock)

    def carry(self, request: Request, send: Send) -> ClientResponse:
        def checked() -> ClientResponse:
            answer = send()
            assert answer.status < 500, (request.method, request.path, answer.body)
            return answer

        is_report = request.method == "PUT" or request.path.endswith("/epoch")
        fate = 1.0 if self.is_calm or not is_report else self.fate
        if fate < 0.25:
            self.delayed.append(checked)
            raise Unavailable("no answer in time")
        if fate < 0.3:
            self.delayed.append(checked)  # it arrives again
        answer = checked()
        if fate < 0.35:
            raise Unavailable("the answer was lost")
        return answer

    # ------------------------------------------------------------------------------------ what happens

    def new_instance(self) -> str:
        return str(UUID(int=self.random.getrandbits(128), version=4))

    def bind(self) -> None:
        instance = self.new_instance()
        body = {"device_profile_name": "card"}
        (arq,) = self.users("POST", "/v2/accelerator_requests", role="service", body=body).body["arqs"]
        fields = {"hostname": HOST, "device_rp_uuid": rp(self.random.choice(CARDS)), "instance_uuid": instance}
        patch = {arq["uuid"]: [{"op": "add", "path": f"/{name}", "value": value} for name, value in fields.items()]}
        answer = self.users("PATCH", "/v2/accelerator_requests", role="service", body=patch)
        assert answer.status in (202, 409)
        if answer.status == 202:
            self.bound.add(instance)

    def delete(self) -> None:
        if self.bound:
            instance = self.random.choice(sorted(self.bound))
            path = f"/v2/accelerator_requests?instance={instance}"
            assert self.users("DELETE", path, role="service").status == 204

    def plug(self) -> None:
        instance = self.new_instance()
        try:
            self.rig.plug(instance, gpu(), self.random.choice(CARDS))
        except NoCapacity:
            return
        self.plugged.add(instance)

    def unplug(self) -> None:
        if self.plugged:
            instance = self.random.choice(sorted(self.plugged))
            self.plugged.discard(instance)
            self.rig.unplug(instance)

    def work(self) -> None:
        self.jobs.run_once()

    def report(self) -> None:
        try:
            self.rig.agent.run_once()
        except Unavailable:
            return  # as the task that reports: it tries again

    def deliver(self) -> None:
        if self.delayed:
            self.delayed.pop(self.random.randrange(len(self.delayed)))()

    def restart(self) -> None:
        self.rig.agent.close()
        self.rig.restart()
        self.run_agent()

    def wait(self) -> None:
        self.clock.sleep(self.random.choice([1, 15, 70]))

    # ------------------------------------------------------------------------------------ what must hold

    def requests_by_instance(self) -> dict[str, str]:
        return {
            one["instance_uuid"]: one["state"] for one in self.users("GET", "/v2/accelerator_requests").body["arqs"]
        }

    def check(self) -> None:
        known = self.requests_by_instance()
        held = self.rig.held.attachments
        assert not self.gone & known.keys(), "a released instance has a request again"
        forgotten = {instance for instance in self.bound if instance not in known and instance not in held}
        self.gone |= forgotten
        self.bound -= forgotten

    def settle(self) -> None:
        """Everything that was delayed arrives, the host does all of its jobs, and reports."""
        self.random.shuffle(self.delayed)
        self.is_calm = True
        for send in self.delayed:
            send()
            self.check()
        for _ in range(60):  # more than the jobs of all steps with their attempts
            self.jobs.run_once()
            self.clock.sleep(15)
        self.rig.agent.run_once()

    def check_agreement(self) -> None:
        known = self.requests_by_instance()
        assert "BindStarted" not in known.values(), "a binding stalls"
        holders = {instance for instance, state in known.items() if state == "Bound"}
        assert holders == set(self.rig.held.attachments)
        rows = self.users("GET", f"/moorage/v1/handles?host={HOST}").body["handles"]
        attached = {row["handle"] for row in rows if row["state"] == "attached"}
        assert attached == set(self.rig.held.handles)


def run(seed: int) -> None:
    random, clock = Random(seed), VirtualClock(datetime(2026, 3, 1, tzinfo=UTC))
    with (
        tempfile.TemporaryDirectory() as directory,
        process_in(Path(directory) / "service", RecordedHints(), clock=clock, ids=SeededIds(seed)) as process,
    ):
        world = World(Path(directory), process, random)
        # More reports, jobs and deliveries than others, because these are what gets out of order.
        actions: list[Callable[[], None]] = [
            world.bind, world.bind, world.delete, world.delete, world.plug, world.unplug, world.restart, world.wait,
            *[world.work] * 5, *[world.report] * 4, *[world.deliver] * 3,
        ]  # fmt: skip
        for _ in range(STEPS):
            world.fate = random.random()
            random.choice(actions)()
            world.check()
        world.settle()
        world.check()
        world.check_agreement()


@settings(max_examples=EXAMPLES, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_late_repeated_and_lost_reports_change_nothing_that_is_newer(seed):
    run(seed)
