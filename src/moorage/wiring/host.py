"""The host: virt driver, resource tracker, accelerator agent and their duties."""

import logging
from datetime import timedelta
from pathlib import Path

import os_acc
from moorage.accelerator import agent_api
from moorage.accelerator.agent import AcceleratorAgent
from moorage.accelerator.agent_socket import SocketServer, is_too_long
from moorage.accelerator.client import AcceleratorClient
from moorage.accelerator.drivers.description import built_in_host
from moorage.accelerator.drivers.simulated import SimulatedDriver
from moorage.agent.host import AgentSettings, HostAgent
from moorage.agent.published import PublishedFile
from moorage.agent.resource_tracker import ProviderFiles, ResourceTracker, resources_topic
from moorage.agent.virt.host_description import HostDescription, read_description
from moorage.agent.virt.simulated import SimulatedDriver as SimulatedHypervisor
from moorage.compute.client import ComputeClient
from moorage.images.cache import DigestCache
from moorage.images.glance import GlanceImages
from moorage.placement.client import PlacementClient
from moorage.wire.transports import InProcessTransport
from moorage.wiring.parts import Parts

log = logging.getLogger(__name__)


def build_agent(parts: Parts) -> None:
    options = parts.config.agent
    accelerators = _accelerator_agent(parts, options.host)
    virt = SimulatedHypervisor(_host_description(parts), parts.config.state / "host", parts.clock)
    tracker = ResourceTracker(
        driver=virt,
        grafts=accelerators,
        placement=PlacementClient(parts.client("placement")),
        files=ProviderFiles(
            Path(parts.config.compute.provider_config_location),
            allow_writable_by_others=parts.config.compute.provider_config_writable_by_others,
        ),
        published=PublishedFile(parts.config.state / "host" / "published.json"),
        clock=parts.clock,
        ids=parts.ids,
    )
    local = InProcessTransport(agent_api.wsgi_app(accelerators, parts.ids))
    agent = HostAgent(
        host=options.host,
        driver=virt,
        tracker=tracker,
        acceleration=os_acc.Client(local, clock=parts.clock),
        refers_to_accelerators=os_acc.refers_to_accelerators,
        compute=ComputeClient(parts.client("compute")),
        clock=parts.clock,
        wakeups=parts.wakeups,
        settings=AgentSettings(
            workers=options.workers,
            heartbeat_period_s=options.heartbeat_period_s,
            update_period_s=options.update_period_s,
            poll_period_s=options.poll_period_s,
            keep_alive_period_s=options.job_lease_s / 4,
        ),
    )
    # The host reads its files first: a fault in them stops the start before a device is touched.
    parts.plane.starts.append(agent.start)
    parts.plane.stops.append(accelerators.close)
    _serve_os_acc(parts, accelerators)
    parts.plane.duties += [accelerators, *agent.duties]


def _serve_os_acc(parts: Parts, accelerators: AcceleratorAgent) -> None:
    """For the os_acc of other processes of this host; our own agent needs no socket."""
    wanted = parts.config.accelerator.agent_socket
    path = Path(wanted) if wanted else parts.config.state / "os-acc.sock"
    if not wanted and is_too_long(path):
        log.warning(
            "no socket for os_acc: its path is too long; name a shorter one as [accelerator] agent_socket",
            extra={"path": str(path)},
        )
        return
    server = SocketServer(agent_api.wsgi_app(accelerators, parts.ids), path)
    parts.plane.starts.append(server.start)
    parts.plane.stops.append(server.stop)


def _accelerator_agent(parts: Parts, host: str) -> AcceleratorAgent:
    state = parts.config.state / "accelerators"
    driver = SimulatedDriver(built_in_host(), state / "simulated", parts.clock)
    return AcceleratorAgent(
        host,
        [driver],
        state,
        GlanceImages(parts.client("image")),
        DigestCache(state / "bitstreams", max_bytes=parts.config.accelerator.bitstream_cache_bytes, clock=parts.clock),
        parts.clock,
        reports=AcceleratorClient(parts.client("accelerator")),
        changed=lambda: _accelerators_changed(parts, host),
        report_every=timedelta(seconds=parts.config.accelerator.report_period_s),
    )


def _accelerators_changed(parts: Parts, host: str) -> None:
    parts.wakeups.wake(resources_topic(host))
    parts.wakeups.wake(f"accelerator-agent@{host}")


def _host_description(parts: Parts) -> HostDescription:
    if parts.config.agent.host_description:
        return read_description(Path(parts.config.agent.host_description))
    return HostDescription(name=parts.config.agent.host)
