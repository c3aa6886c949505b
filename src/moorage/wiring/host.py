"""Builds a host: virt driver, resource tracker, accelerator agent and their tasks; also additional simulated hosts."""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import msgspec

import os_acc
from moorage.accelerator.client import AcceleratorClient
from moorage.accelerator.drivers.base import AcceleratorDriver
from moorage.accelerator.drivers.device_spec import DeviceSpec, parse_specs
from moorage.accelerator.drivers.fpga_dfl import FpgaDflDriver
from moorage.accelerator.drivers.fpga_manager import FpgaManagerDriver
from moorage.accelerator.drivers.nvidia import NvidiaDriver
from moorage.accelerator.drivers.opae import OpaeDriver
from moorage.accelerator.drivers.pci import PciDriver
from moorage.accelerator.drivers.qat import QatDriver
from moorage.accelerator.drivers.simulated import (
    SimulatedAccelerators,
    default_simulated_host,
    simulated_host_with_every_device_type,
)
from moorage.accelerator.drivers.xrt import XrtDriver
from moorage.accelerator.host import agent_api
from moorage.accelerator.host.agent import (
    AcceleratorAgent,
    AcceleratorListener,
    AcceleratorSettings,
    HistoryReportTask,
    device_history_topic,
)
from moorage.accelerator.host.agent_api import SocketServer, is_socket_path_too_long
from moorage.accelerator.host.checkpoint import Checkpoint
from moorage.accelerator.host.programming import BitstreamSource
from moorage.accelerator.host.signatures import SignatureVerifier
from moorage.accelerator.model.naming import NameScheme
from moorage.accelerator.service.host_jobs import jobs_topic
from moorage.agent.control import (
    HostControl,
    ProviderConfigJobs,
    ProviderConfigReloader,
    ProviderConfigTask,
    control_app,
)
from moorage.agent.host_agent import AgentSettings, HostAgent, HostAgentDeps
from moorage.agent.host_reports import DeviceFaultsTask, DomainsTask, HostBoot, device_faults_topic
from moorage.agent.jobs.console_jobs import ConsoleJobs
from moorage.agent.jobs.job_runner import AcceleratorRunner, JobWork, work_of
from moorage.agent.jobs.job_task import HostQueue, JobsTask, JobsWhileReady
from moorage.agent.jobs.server_build import NoAcceleration
from moorage.agent.jobs.snapshots import ImageSnapshots
from moorage.agent.provider_config.installation import CurrentConfigSet
from moorage.agent.provider_config.load import ProviderFiles
from moorage.agent.tracker.published_state import PublishedFile
from moorage.agent.tracker.resource_tracker import ExternalHypervisor, ResourcesTask, ResourceTracker, resources_topic
from moorage.agent.tree.provider_tree import NoAcceleratorProviders
from moorage.agent.virt.driver import VirtDriver
from moorage.agent.virt.host_description import HostDescription, read_description
from moorage.agent.virt.simulated import SimulatedDriver as SimulatedHypervisor
from moorage.compute.client.compute_client import ComputeClient
from moorage.config import AGENT_SOCKET, Config, comma_separated
from moorage.core.clock import is_real_time
from moorage.core.errors import StartError
from moorage.default_paths import OS_ACC_SOCKET
from moorage.images.cache import DigestCache
from moorage.images.for_hosts import DiskImageUploads, HostImageSource
from moorage.jobs.background_tasks import Task
from moorage.jobs.contract import ConsoleJob, JobKind, ProviderConfigJob
from moorage.placement.client.placement_client import PlacementClient
from moorage.wire.app import WsgiApp
from moorage.wire.transports import InProcessTransport
from moorage.wiring.components import SIMULATED_HOST_THREADS, Components

log = logging.getLogger(__name__)


def build_agent(parts: Components) -> ProviderConfigReloader:
    """Builds the agent; returns the object that reloads the host's provider configuration."""
    options = parts.config.agent
    accelerators = _accelerator_agent(parts, options.host)
    virt = _hypervisor(parts)
    tracker = _tracker(parts, virt, accelerators)
    compute = ComputeClient(parts.host_client("compute", options.host))
    local = parts.through("os_acc", InProcessTransport(agent_api.wsgi_app(accelerators, parts.ids)))
    reloader = ProviderConfigReloader(
        tracker, CurrentConfigSet(parts.config.state / "host" / "provider_config.json"), parts.clock
    )
    control = HostControl(options.host, tracker, reloader, lambda server: _name_of(compute, options.host, server))
    acceleration = os_acc.Client(local, clock=parts.clock)
    config_jobs = ProviderConfigJobs(control, parts.clock, may_apply=parts.config.compute.provider_config_remote_apply)
    deps = HostAgentDeps(
        driver=virt,
        tracker=tracker,
        acceleration=acceleration,
        refers_to_accelerators=os_acc.refers_to_accelerators,
        compute=compute,
        clock=parts.clock,
        wakeups=parts.wakeups,
        snapshots=ImageSnapshots(virt, DiskImageUploads(options.host, parts.host_client("compute", options.host))),
        job_ended=parts.plane.metrics.agent_jobs.record_job,
        others={
            JobKind.PROVIDER_CONFIG: work_of(JobKind.PROVIDER_CONFIG, ProviderConfigJob, config_jobs.run_job),
            **_console_work(parts, virt),
        },
    )
    agent = HostAgent(options.host, deps, settings_of(parts))
    parts.plane.built |= {
        "agent": agent,
        "hypervisor": virt,
        "tracker": tracker,
        "accelerators": accelerators,
        "os_acc": acceleration,
    }
    # The host reads its files first, so that an error in them stops the start before a device is touched.
    parts.plane.starts += [agent.start, reloader.record_start]
    parts.plane.stops.append(accelerators.close)
    _serve_os_acc(parts, accelerators)
    agent_app = control_app(control, parts.ids, parts.trail)
    _serve_here(parts, agent_app, options.socket, AGENT_SOCKET, "[agent] socket")
    watch = ProviderConfigTask(
        reloader, host=options.host, clock=parts.clock, period_s=parts.config.compute.provider_config_watch_s
    )
    parts.plane.reloads.append(lambda: _request_reload(watch, parts))
    faults = DeviceFaultsTask(options.host, accelerators.failed_devices, compute, parts.clock)
    parts.plane.tasks += [*_accelerator_tasks(parts, accelerators), faults, watch, *agent.tasks]
    if options.virt_driver == "libvirt":  # simulated domains never change by themselves
        parts.plane.tasks.append(_domains_task(parts, virt, compute))
    return reloader


def _tracker(parts: Components, virt: VirtDriver, accelerators: AcceleratorAgent) -> ResourceTracker:
    return ResourceTracker(
        driver=virt,
        accelerators=accelerators,
        placement=PlacementClient(parts.host_client("placement", parts.config.agent.host)),
        files=ProviderFiles(
            parts.config.provider_config,
            allow_writable_by_others=parts.config.compute.provider_config_writable_by_others,
        ),
        published=PublishedFile(parts.config.state / "host" / "published.json"),
        clock=parts.clock,
        ids=parts.ids,
    )


def _console_work(parts: Components, virt: VirtDriver) -> dict[str, JobWork]:
    consoles = ConsoleJobs(virt, parts.clock, ca_file=parts.config.ca_file)
    parts.plane.stops.append(consoles.close)
    return {JobKind.CONSOLE: work_of(JobKind.CONSOLE, ConsoleJob, consoles.run_job)}


def _name_of(compute: ComputeClient, host: str, server: str) -> str | None:
    here = compute.server_here(host, server)
    return None if here is None else here.name


def build_accelerator_agent(parts: Components) -> None:
    """Builds the accelerator agent of a host whose servers a real Nova runs. Its providers go below Nova's provider."""
    options = parts.config.agent
    accelerators = _accelerator_agent(parts, options.host)
    tracker = ResourceTracker(
        driver=ExternalHypervisor(options.host),
        accelerators=accelerators,
        placement=PlacementClient(parts.host_client("placement", options.host)),
        # Nova's compute agent reads and publishes the provider configuration files.
        files=ProviderFiles(parts.config.state / "host" / "provider_config"),
        published=PublishedFile(parts.config.state / "host" / "published.json"),
        clock=parts.clock,
        ids=parts.ids,
    )
    parts.plane.built |= {"tracker": tracker, "accelerators": accelerators}
    parts.plane.starts.append(accelerators.start)
    parts.plane.stops.append(accelerators.close)
    _serve_os_acc(parts, accelerators)
    resources = ResourcesTask(tracker, host=options.host, clock=parts.clock, period_s=options.update_period_s)
    parts.plane.tasks += [*_accelerator_tasks(parts, accelerators), resources]


def _hypervisor(parts: Components) -> VirtDriver:
    if parts.config.agent.virt_driver == "libvirt":
        # Imported only on demand: it needs bindings that other hosts do not have.
        from moorage.wiring.libvirt_host import libvirt_driver

        return libvirt_driver(parts, _images_of(parts, parts.config.agent.host))
    return SimulatedHypervisor(host_description(parts), parts.config.state / "host", parts.clock)


def _domains_task(parts: Components, virt: VirtDriver, compute: ComputeClient) -> DomainsTask:
    options = parts.config.agent
    boot = HostBoot(host=options.host, boot_id_file=parts.config.state / "host" / "boot_id", compute=compute)
    return DomainsTask(
        host=options.host,
        driver=virt,
        compute=compute,
        clock=parts.clock,
        period_s=options.domain_report_period_s,
        boot=boot if options.resume_guests_state_on_host_boot else None,
    )


def _serve_os_acc(parts: Components, accelerators: AcceleratorAgent) -> None:
    """Serves os_acc on a socket for other processes of this host; our own agent needs no socket."""
    app = agent_api.wsgi_app(accelerators, parts.ids, parts.trail)
    wanted = parts.config.accelerator.agent_socket
    _serve_here(parts, app, wanted, OS_ACC_SOCKET, "[accelerator] agent_socket")


def _accelerator_tasks(parts: Components, accelerators: AcceleratorAgent) -> list[Task]:
    return [accelerators, HistoryReportTask(accelerators), _binding_task(parts, accelerators)]


def _binding_task(parts: Components, accelerators: AcceleratorAgent) -> JobsTask:
    """The task for requests that are bound through the API, as Nova does."""
    options = parts.config.agent
    queue = HostQueue(
        options.host,
        JobsWhileReady(AcceleratorClient(parts.host_client("accelerator", options.host)), accelerators.check_counts),
        parts.config.agent_poll_s,
        what="accelerator jobs",
        topic=jobs_topic(options.host),
    )
    runner = AcceleratorRunner(accelerators, keep_alive_period_s=options.job_lease_s / 4)
    return JobsTask(queue, 1, runner, parts.clock, ended=parts.plane.metrics.agent_jobs.record_job)


def _request_reload(watch: ProviderConfigTask, parts: Components) -> None:
    watch.request_reload()
    parts.wakeups.wake(watch.name)


def settings_of(parts: Components) -> AgentSettings:
    options = parts.config.agent
    return AgentSettings(
        workers=options.workers,
        heartbeat_period_s=options.heartbeat_period_s,
        update_period_s=options.update_period_s,
        poll_period_s=parts.config.agent_poll_s,
        keep_alive_period_s=options.job_lease_s / 4,
        releases_on_stop=_releases_on_stop(parts),
    )


def _releases_on_stop(parts: Components) -> bool:
    """Raises `StartError`."""
    wanted = parts.config.agent.accelerators_on_stop
    if wanted not in ("keep", "release"):
        raise StartError(f"{parts.config.source}: [agent] accelerators_on_stop is {wanted!r}; it takes keep or release")
    return wanted == "release"


def _serve_here(parts: Components, app: WsgiApp, wanted: str, name: str, option: str) -> None:
    """Serves `app` on a Unix socket: `wanted`, or `name` in the state directory."""
    if not parts.has_sockets:
        return
    path = Path(wanted) if wanted else parts.config.state / name
    if not wanted and is_socket_path_too_long(path):
        log.warning(
            "no socket: its path is too long; set a shorter path with the option",
            extra={"path": str(path), "option": option},
        )
        return
    server = SocketServer(app, path)
    parts.plane.starts.append(server.start)
    parts.plane.stops.append(server.stop)


def _accelerator_agent(parts: Components, host: str) -> AcceleratorAgent:
    state, options = parts.config.state / "accelerators", parts.config.accelerator
    cache = DigestCache(state / "bitstreams", max_bytes=options.bitstream_cache_bytes, clock=parts.clock)
    bitstreams = BitstreamSource(_images_of(parts, host), cache, _signatures(parts))
    settings = AcceleratorSettings(timedelta(seconds=options.report_period_s), _names(parts.config))
    return AcceleratorAgent(
        host,
        _accelerator_drivers(parts, state),
        Checkpoint(state / "checkpoint.json", host, parts.clock),
        bitstreams,
        parts.clock,
        reports=AcceleratorClient(parts.host_client("accelerator", host)),
        listener=AcceleratorListener(
            offer_changed=lambda: parts.wakeups.wake(resources_topic(host)),
            report_wanted=lambda: parts.wakeups.wake(f"accelerator-agent@{host}"),
            history_recorded=lambda: parts.wakeups.wake(device_history_topic(host)),
            faults_changed=lambda: parts.wakeups.wake(device_faults_topic(host)),
        ),
        settings=settings,
    )


def _images_of(parts: Components, host: str) -> HostImageSource:
    """The sources of images for the host: the services that send it jobs."""
    services = [name for name in ("compute", "accelerator") if parts.has(name)]
    if "accelerator-agent" in parts.config.runs:  # a real Nova runs its servers
        services = ["accelerator"]
    return HostImageSource(host, [parts.host_client(name, host) for name in services])


def _names(config: Config) -> NameScheme:
    """Raises `StartError` if Moorage's own compute would request other resource classes than this host offers."""
    names, ours = NameScheme(config.accelerator.names), [name for name in ("compute", "agent") if name in config.runs]
    if names is NameScheme.CYBORG and ours:
        raise StartError(
            f"{config.source}: [accelerator] names is cyborg, and [plane] services has {ours[0]}: a server of "
            "Moorage's own compute requests CUSTOM_ACCELERATOR_<TYPE> and would find no device on this host. Remove "
            "names; or, on a host of a real Nova, run accelerator-agent without compute and agent"
        )
    return names


def _signatures(parts: Components) -> SignatureVerifier:
    """Raises `StartError` for a missing directory, or for required signatures that no key can verify."""
    options = parts.config.accelerator
    keys = parts.config.state / options.signature_keys if options.signature_keys else None
    return SignatureVerifier(
        keys,
        parts.clock,
        always=options.signatures == "always",
        of_data_suffices=options.data_signatures == "suffice",
    )


def _accelerator_drivers(parts: Components, state: Path) -> list[AcceleratorDriver]:
    """Raises `StartError` for an unknown driver name or an invalid device spec."""
    options, source = parts.config.accelerator, parts.config.source

    def specs(option: str, text: str) -> tuple[DeviceSpec, ...]:
        return parse_specs(text, f"{source}: [accelerator] {option}")

    simulated = {"usual": default_simulated_host, "every_kind": simulated_host_with_every_device_type}[
        options.simulated_devices
    ]
    makers: dict[str, Callable[[], AcceleratorDriver]] = {
        "simulated": lambda: SimulatedAccelerators(simulated(), state / "simulated", parts.clock),
        "pci": lambda: PciDriver(specs("pci_devices", options.pci_devices)),
        "nvidia": lambda: NvidiaDriver(specs("nvidia_devices", options.nvidia_devices)),
        "qat": lambda: QatDriver(specs("qat_devices", options.qat_devices)),
        "fpga_dfl": lambda: FpgaDflDriver(state / "fpga_dfl", specs("fpga_devices", options.fpga_devices)),
        "fpga_manager": lambda: FpgaManagerDriver(state / "fpga_manager", specs("fpga_devices", options.fpga_devices)),
        "opae": lambda: OpaeDriver(state / "opae", specs("fpga_devices", options.fpga_devices)),
        "xrt": lambda: XrtDriver(state / "xrt", specs("xrt_devices", options.xrt_devices)),
    }
    names = comma_separated(options.drivers)
    if unknown := [name for name in names if name not in makers]:
        raise StartError(f"{source}: [accelerator] drivers names {unknown[0]}; there are {', '.join(makers)}")
    return [makers[name]() for name in dict.fromkeys(names)]


def host_description(parts: Components) -> HostDescription:
    if parts.config.agent.host_description:
        return read_description(Path(parts.config.agent.host_description))
    return HostDescription(name=parts.config.agent.host)


def build_simulated_hosts(parts: Components, reloader: ProviderConfigReloader) -> None:
    """Builds the additional simulated hosts of this process: hundreds or thousands, for rehearsals and measurements.

    Each has its own hypervisor, resource tracker and agent, like a host in its own process. They share threads,
    provider configuration files and connections, and have no accelerators.
    """
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
        deps = HostAgentDeps(
            driver=driver,
            tracker=tracker,
            acceleration=NoAcceleration(),
            refers_to_accelerators=os_acc.refers_to_accelerators,
            compute=ComputeClient(parts.host_client("compute", name)),
            clock=parts.clock,
            wakeups=parts.wakeups,
            snapshots=ImageSnapshots(driver, DiskImageUploads(name, parts.host_client("compute", name))),
            others=_console_work(parts, driver),
        )
        agents.append(HostAgent(name, deps, settings_of(parts)))
    parts.plane.starts.append(lambda: _start_agents(agents, in_turn=not is_real_time(parts.clock)))
    parts.plane.simulated_host_tasks += [task for agent in agents for task in agent.tasks]


def _start_agents(agents: Sequence[HostAgent], *, in_turn: bool) -> None:
    """Starts all agents; raises the first error. One after the other in virtual time, so that the order is fixed."""
    if in_turn:
        for agent in agents:
            agent.start()
        return
    with ThreadPoolExecutor(SIMULATED_HOST_THREADS, thread_name_prefix="start") as pool:
        for _ in pool.map(HostAgent.start, agents):
            continue
