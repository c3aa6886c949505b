"""Users, builder and host act in random order and die at random points; in the end all records agree."""

from random import Random

import pytest

from moorage.compute.model.servers import TaskState, VmState
from moorage.compute.scheduling.job_worker import LEASE_S
from moorage.compute.store import server_store
from moorage.core.errors import Conflict, NotFound
from moorage.db.session import read
from tests.plane import Killed

ACTIONS = ["os-stop", "os-start", "pause", "unpause", "reboot", "forceDelete", "os-resetState"]


class RandomActions:
    def __init__(self, plane, host, seed):
        self.plane, self.host, self.random = plane, host, Random(seed)
        self.servers, self.held, self.deaths = [], [], 0
        plane.builder.run_once()
        plane.flavor("small")
        plane.flavor("large", vcpus=9)

    def boot(self):
        self.servers.append(self.plane.boot(self.random.choice(["small", "large"]), f"vm{len(self.servers)}"))

    def delete(self):
        if self.servers:
            self.plane.send("DELETE", f"/v2.1/servers/{self.random.choice(self.servers)}")

    def act(self):
        if self.servers:
            action = self.random.choice(ACTIONS)
            argument = {"reboot": {"type": self.random.choice(["SOFT", "HARD"])}, "os-resetState": {"state": "error"}}
            server_id = self.random.choice(self.servers)
            self.plane.act(server_id, action, argument.get(action), who="root:admin", roles="admin")

    def build(self):
        self.plane.builder.run_once()

    def die_while_building(self):
        way = self.plane.to_placement
        way.die(self.random.randrange(4), self.random.choice(["before", "after"]))
        try:
            self.plane.builder.run_once()
        except Killed:
            self.deaths += 1
            self.plane.succeed(f"builder-{self.deaths}")
        way.clear()

    def claim(self):
        self.held += self.host.claim()

    def report(self):
        """Reports a random job, which may have been lost long ago."""
        if self.held:
            job = self.held.pop(self.random.randrange(len(self.held)))
            if self.random.random() < 0.3:
                self.host.fails[job.kind] = "out of luck"
            try:
                self.host.report(job)
            except (Conflict, NotFound):
                return
            if self.random.random() < 0.2:
                self.held.append(job)  # the answer to this report is lost

    def wait(self):
        self.plane.clock.sleep(self.random.choice([1, LEASE_S + 1]))
        self.host.register()

    def come_to_rest(self):
        self.host.fails.clear()
        for _ in range(3):
            self.plane.clock.sleep(LEASE_S + 1)
            self.host.register()
            self.plane.settle(self.host)


@pytest.mark.parametrize("seed", range(12))
def test_after_random_actions_and_deaths_no_server_is_stuck_and_each_allocation_has_its_server(plane, host, seed):
    actions = RandomActions(plane, host, seed)
    steps = [actions.boot, actions.delete, actions.act, actions.act, actions.build, actions.die_while_building,
             actions.claim, actions.report, actions.report, actions.wait]  # fmt: skip
    for _ in range(60):
        actions.random.choice(steps)()
    actions.come_to_rest()
    with read(plane.engine) as connection:
        servers = [server_store.server(connection, server_id) for server_id in actions.servers]
        waiting = [job for server in servers for job in server_store.HOST_JOBS.story(connection, server.id)]
    assert all(job.finished_at is not None for job in waiting)
    for server in servers:
        allocations = plane.placement.allocations(server.id)
        if server.vm_state is VmState.DELETED:
            assert allocations == {}, server
        else:
            assert server.task_state is None, server
            # An administrator may set a server to ERROR during its build; it keeps its allocations until it is deleted.
            assert allocations == (server.placed.allocations if server.placed else {}), server
    held = [server for server in servers if plane.placement.allocations(server.id)]
    used = plane.placement.usages(host.provider.uuid)["VCPU"]
    assert used == sum(server.flavor.vcpus for server in held) <= 16
    assert TaskState.DELETING not in {server.task_state for server in servers}
