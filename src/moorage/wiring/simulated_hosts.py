"""Further simulated hosts in the process of the first one: hundreds or thousands, for rehearsals and measurements.

Each has a hypervisor, a resource tracker and an agent of its own, like a host in a process of its own; they share the
threads, the provider configuration files and the client connections, and have no accelerators.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

import os_acc
from moorage.agent.control.provider_config_reload import ProviderConfigReloader
from moorage.agent.host.host_agent import HostAgent
from moorage.agent.jobs.server_build import NoAcceleration
from moorage.agent.jobs.snapshots import ImageSnapshots
from moorage.agent.tracker.published_state import PublishedFile
from moorage.agent.tracker.resource_tracker import ResourceTracker
from moorage.agent.tree.accelerator_subtree import NoAcceleratorProviders
from moorage.agent.virt.simulated import SimulatedDriver as SimulatedHypervisor
from moorage.compute.client.compute_client import ComputeClient
from moorage.core.clock import VirtualClock
from moorage.images.for_hosts import DiskImages
from moorage.placement.client.placement_client import PlacementClient
from moorage.wiring.components import CROWD_THREADS, Components
from moorage.wiring.host import host_description, settings_of


def build_crowd(parts: Components, reloader: ProviderConfigReloader) -> None:
    """The hosts after the first."""
    described = host_description(parts)
    agents = []
    for name in parts.config.hosts[1:]:
        state = parts.config.state / "hosts" / name
        driver = SimulatedHypervisor(msgspec.structs.replace(described, name=name, uuid=None), state, parts.clock)
        tracker = ResourceTracker(
            driver=driver,
            accelerators=NoAcceleratorProviders(),
            placement=PlacementClient(parts.host_client("placement", name)),
            files=reloader.files,
            published=PublishedFile(state / "published.json"),
            clock=parts.clock,
            ids=parts.ids,
        )
        reloader.followers.append(tracker)
        agents.append(
            HostAgent(
                host=name,
                driver=driver,
                tracker=tracker,
                acceleration=NoAcceleration(),
                refers_to_accelerators=os_acc.refers_to_accelerators,
                compute=ComputeClient(parts.host_client("compute", name)),
                clock=parts.clock,
                wakeups=parts.wakeups,
                settings=settings_of(parts),
                snapshots=ImageSnapshots(driver, DiskImages(name, parts.host_client("compute", name))),
            )
        )
    parts.plane.starts.append(lambda: _start(agents, in_turn=isinstance(parts.clock, VirtualClock)))
    parts.plane.crowd += [task for agent in agents for task in agent.tasks]


def _start(agents: Sequence[HostAgent], *, in_turn: bool) -> None:
    """Raises the first error there is. In turn under virtual time, which has one order of things only."""
    if in_turn:
        for agent in agents:
            agent.start()
        return
    with ThreadPoolExecutor(CROWD_THREADS, thread_name_prefix="start") as pool:
        for _ in pool.map(HostAgent.start, agents):
            continue
