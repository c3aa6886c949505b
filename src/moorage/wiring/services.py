"""One function per service, which builds its database, use cases, routes and background tasks.

Each function imports the service that it builds, so a process that serves placement alone starts in half the time.
"""

import dataclasses
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Engine, Table

from moorage.config import DASHBOARD_PATH, ENDPOINT_PATHS, Config, comma_separated
from moorage.core.clock import Clock, is_real_time
from moorage.core.errors import Invalid, StartError
from moorage.wiring.auth import membership_of
from moorage.wiring.components import Components
from moorage.wiring.reservation_settings import before_end_settings, enforcement_settings

if TYPE_CHECKING:
    from moorage.accelerator.client import AcceleratorClient
    from moorage.compute.console_proxy import ConsoleListener
    from moorage.compute.service import ComputeService
    from moorage.identity.embedded import EmbeddedIdentity
    from moorage.identity.oidc.sign_in import OidcSignIn
    from moorage.jobs.background_tasks import Task
    from moorage.jobs.worker_watch import IsFirst
    from moorage.network.client.server_ports import NetworkLookup, ServerPorts
    from moorage.placement.client.placement_client import PlacementClient
    from moorage.scheduler.options import SchedulerSettings

#: With a shorter history, a process that was busy for a while would have to read everything again.
MIN_HISTORY_S = 60
#: Maximum for options in days: a century.
MAX_DAYS = 36_500


def build_identity(parts: Components) -> None:
    from moorage.identity.accounts.account_service import AccountService
    from moorage.identity.accounts.catalog_service import CatalogEditor
    from moorage.identity.accounts.credential_service import CredentialService
    from moorage.identity.accounts.invitation_service import InvitationService
    from moorage.identity.accounts.role_service import RoleService
    from moorage.identity.api import routes as identity_routes
    from moorage.identity.service import IdentityService

    identity, ids = parts.identity, parts.ids
    if identity is None:  # Keystone serves it, or there are no users
        if parts.config.oidc.issuer:
            raise StartError(
                f"{parts.config.source}: [oidc] issuer is set, but [identity] mode = {parts.config.identity.mode} has "
                "no users of its own; let that service ask the provider, or remove [oidc]"
            )
        return
    # Clients ask a network service that the catalogue names at every server, so it must not be one that nobody runs.
    has_networks = parts.has("network") or parts.has_server_networks
    named = [name for name in ENDPOINT_PATHS if name != "network" or has_networks]
    endpoints = {name: _public_endpoint(parts, name) for name in named}
    service = IdentityService(
        identity,
        CatalogEditor(identity.database, ids, endpoints, parts.config.plane.region, "/identity"),
        AccountService(identity, ids),
        RoleService(identity, ids),
        CredentialService(identity, ids),
        InvitationService(identity),
        _oidc(parts, identity),
    )
    parts.serve("identity", identity_routes.API, service, identity_routes.RULES, parts.plane.engines["identity"])


def _oidc(parts: Components, identity: "EmbeddedIdentity") -> "OidcSignIn | None":
    """Sign-in with the provider of [oidc]; None without one. Raises `StartError`."""
    options, place = parts.config.oidc, f"{parts.config.source}: [oidc]"
    if not options.issuer:
        return None
    try:
        from moorage.identity.oidc.provider import OpenIdProvider
        from moorage.identity.oidc.sign_in import OidcSignIn
    except ImportError as error:
        raise StartError(
            f"{place} issuer is set, but {error.name} is not installed: pip install moorage[oidc]"
        ) from error
    from moorage.identity.oidc.mapping import parse_mapping
    from moorage.identity.oidc.settings import OidcSettings, checked_settings

    if not options.mapping_file:
        raise StartError(f"{place} mapping_file is empty; without rules nobody has a role (docs/reference/oidc.md)")
    mapping_file = parts.config.state / options.mapping_file
    settings = checked_settings(
        OidcSettings(
            issuer=options.issuer,
            name=options.name,
            client_id=options.client_id,
            client_secret=_secret_in(parts.config.state / options.client_secret_file, f"{place} client_secret_file")
            if options.client_secret_file
            else "",
            device_client_id=options.device_client_id,
            redirect_uri=options.redirect_uri or f"{parts.config.base_url}{DASHBOARD_PATH}/sign-in/provider/callback",
            scopes=options.scopes,
            person_claim=options.person_claim,
            name_claim=options.name_claim,
            projects_claim=options.projects_claim,
            algorithms=tuple(comma_separated(options.algorithms)),
            timeout_s=options.timeout_s,
            ca_file=parts.config.ca_file,
            rules=parse_mapping(_text_of(mapping_file, f"{place} mapping_file"), str(mapping_file)),
        ),
        place,
    )
    return OidcSignIn(identity, OpenIdProvider(settings, parts.clock), settings)


def _secret_in(path: Path, place: str) -> str:
    """The content of a file without the blanks around it. Raises `StartError`."""
    if not (secret := _text_of(path, place).strip()):
        raise StartError(f"{place}: {path} is empty")
    return secret


def _text_of(path: Path, place: str) -> str:
    """Raises `StartError`."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise StartError(f"{place}: {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise StartError(f"{place}: {path} is not UTF-8") from error


def _public_endpoint(parts: Components, service: str) -> str:
    """The URL for the catalogue: in this process, or from [endpoints] with the version that clients expect."""
    elsewhere = parts.config.elsewhere(service)
    _, _, version = ENDPOINT_PATHS[service][1:].partition("/")
    return f"{elsewhere.rstrip('/')}/{version}".rstrip("/") if elsewhere else ENDPOINT_PATHS[service]


def build_placement(parts: Components) -> None:
    from moorage.placement.api import routes as placement_routes
    from moorage.placement.service.deps import PlacementSettings
    from moorage.placement.service.event_service import RetentionTask
    from moorage.placement.service.service import PlacementService

    engine = parts.engine("placement")
    options = parts.config.placement
    history = _history(parts.config)
    service = PlacementService(
        engine,
        parts.clock,
        parts.ids,
        PlacementSettings(
            watchers=max(0, min(options.watchers, parts.config.server.threads - 1)),  # one thread stays free
            memory_s=options.memory_s,
            max_search_steps=options.max_search_steps,
        ),
        registry=parts.plane.metrics.registry,
    )
    parts.plane.starts.append(service.start)
    parts.plane.drains.append(service.events.close)
    parts.plane.tasks.append(RetentionTask(engine, parts.clock, history=history))
    rules = placement_routes.POLICIES[options.policy]
    parts.serve("placement", placement_routes.API, service, rules, engine)


def _history(config: Config) -> timedelta:
    """How long changes are kept. Raises `StartError`."""
    history_s = config.placement.history_s
    if history_s < MIN_HISTORY_S:
        raise StartError(
            f"{config.source}: [placement] history_s is {history_s}; it must be at least {MIN_HISTORY_S}, because "
            "other processes learn of writes from the same log"
        )
    return timedelta(seconds=history_s)


_GIB = 1 << 30


def build_image(parts: Components) -> None:
    from moorage.images import routes as image_routes
    from moorage.images.directory import ImageDirectory
    from moorage.images.quota import UNLIMITED, ImageQuota
    from moorage.images.service import ImageService

    options = parts.config.image
    quota = ImageQuota(
        images=options.quota_images,
        size_bytes=options.quota_gb * _GIB if options.quota_gb >= 0 else UNLIMITED,
        keep_free_bytes=int(options.keep_free_gb * _GIB),
    )
    service = ImageService(
        ImageDirectory(parts.config.images, clock=parts.clock, ids=parts.ids, quota=quota),
        clock=parts.clock,
        ids=parts.ids,
    )
    parts.serve("image", image_routes.API, service, image_routes.RULES)


def build_network(parts: Components) -> None:
    from moorage.network import routes as network_routes
    from moorage.network.deps import NetworkDeps
    from moorage.network.entries import parse_entries
    from moorage.network.service import Networking

    options = parts.config.network
    if options.quota_ports < -1:
        raise StartError(f"{parts.config.source}: [network] quota_ports is {options.quota_ports}; use -1 for no limit")
    defaults = parts.config.default_networks
    try:
        entries = parse_entries(defaults or options.lines)
    except Invalid as error:
        raise StartError(f"{parts.config.source}: [network] {error.message}") from error
    engine = parts.engine("network")
    service = Networking(NetworkDeps(engine, parts.clock, parts.ids, options.quota_ports))
    parts.plane.starts.append(lambda: service.networks.apply_entries(entries, are_defaults=bool(defaults)))
    parts.serve("network", network_routes.API, service, network_routes.RULES, engine)


def build_compute(parts: Components) -> None:
    from moorage.audit.audit_task import QUEUE as AUDIT
    from moorage.compute.agents.outage_task import OutageTask
    from moorage.compute.api import routes as compute_routes
    from moorage.compute.catalogue.baremetal_flavors import BareMetalTask
    from moorage.compute.model.servers import BUILD_QUEUE, MOVE_QUEUE
    from moorage.compute.store.meters import show_state
    from moorage.compute.store.server_store import BUILD_JOBS
    from moorage.compute.store.tables import jobs, workers
    from moorage.placement.client.placement_client import PlacementClient
    from moorage.wiring.consoles import build_console_proxy, console_listener
    from moorage.wiring.scheduler import scheduler_options

    engine = parts.engine("compute")
    placement = PlacementClient(parts.client("placement"))
    scheduler = scheduler_options(parts.config)
    consoles = console_listener(parts)
    service = _compute_service(parts, engine, placement, scheduler, consoles)
    if not parts.has_server_networks and not parts.config.endpoints.network:
        parts.plane.starts.append(lambda: _refuse_without_networks(parts, engine))
    show_state(parts.plane.metrics.registry, engine, parts.clock, up_since=service.hosts.up_since)
    if consoles is not None:
        build_console_proxy(parts, service.consoles, consoles)
    is_first = parts.first_of(workers)
    tasks = _compute_tasks(parts, service, placement, scheduler, is_first)
    alone = _job_pruning(parts, "compute", engine, jobs, parts.config.compute.finished_jobs_days, is_first)
    wakes = [BUILD_QUEUE, MOVE_QUEUE, AUDIT, BareMetalTask.name, *(task.name for task in alone)]
    parts.watch_workers("compute", engine, workers, BUILD_JOBS.end_leases_of, wakes)
    if is_real_time(parts.clock):  # in virtual time, time also passes while nothing runs
        outages = OutageTask(engine, parts.clock, service.deps.outages)
        parts.plane.starts += [outages.run_once, partial(parts.plane.run_from_now_on, outages)]
    parts.plane.tasks += [*tasks, *alone]
    parts.serve("compute", compute_routes.API, service, compute_routes.RULES, engine)


def _refuse_without_networks(parts: Components, engine: Engine) -> None:
    """Raises `StartError` if servers have ports: without a network service, their builds and deletions would wait."""
    from moorage.compute.store.server_store import has_interfaces
    from moorage.db.session import read

    with read(engine) as connection:
        is_needed = has_interfaces(connection)
    if is_needed:
        raise StartError(
            f"{parts.config.source}: [plane] services has compute without network, but servers have ports, which this "
            "process could neither bind nor release: add network to [plane] services; or, if another process runs it, "
            "set [endpoints] moorage_network to its URL, or network to that of a Neutron; or delete these servers first"
        )


def _compute_service(
    parts: Components,
    engine: Engine,
    placement: "PlacementClient",
    scheduler: "SchedulerSettings",
    consoles: "ConsoleListener | None",
) -> "ComputeService":
    from moorage.compute.deps import ComputeDeps, ComputeSettings
    from moorage.compute.service import ComputeService
    from moorage.images.client import CallerImages, ImageLookup, ImageWriter
    from moorage.images.glance import GlanceImages
    from moorage.wiring.consoles import console_callers, console_url
    from moorage.wiring.scheduler import spec_rules

    options = parts.config.compute
    networks, server_ports = _server_networks(parts)
    deps = ComputeDeps(
        engine,
        parts.clock,
        parts.ids,
        parts.hints,
        placement=placement,
        images=ImageLookup(parts.client("image")),
        caller_images=CallerImages(parts.client("image"), parts.address("image")),
        image_writer=ImageWriter(parts.client("image")),
        image_source=GlanceImages(parts.client("image")),
        networks=networks,
        server_ports=server_ports,
        profiles=_device_profiles(parts),
        port_device_profiles=frozenset(comma_separated(options.port_device_profiles)),
        spec_rules=spec_rules(parts.config),
        console_url=None if consoles is None else lambda: console_url(parts.config, consoles),
        console_caller=console_callers(parts),
    )
    settings = ComputeSettings(
        quotas=_quotas(parts.config),
        up_window_s=options.host_down_after_s,
        job_lease_s=parts.config.agent.job_lease_s,
        reclaim_after_s=options.reclaim_instance_interval,
        offload_after_s=options.shelved_offload_time,
        quota_consoles=options.quota_consoles,
        allow_resize_to_same_host=options.allow_resize_to_same_host,
        scheduler=scheduler,
    )
    return ComputeService(deps, settings)


def _server_networks(parts: Components) -> "tuple[NetworkLookup | None, ServerPorts | None]":
    """The clients of Moorage's network service, if there is one; else of the Neutron in [endpoints]; else None."""
    from moorage.network.client.moorage_ports import MoorageNetworkLookup, MoorageServerPorts
    from moorage.network.client.neutron_ports import NeutronLookup, NeutronPorts

    if (own := parts.server_networks()) is not None:
        return MoorageNetworkLookup(own), MoorageServerPorts(own)
    if parts.config.endpoints.network:
        neutron = parts.client("network")
        return NeutronLookup(neutron), NeutronPorts(neutron)
    return None, None


def _compute_tasks(
    parts: Components,
    service: "ComputeService",
    placement: "PlacementClient",
    scheduler: "SchedulerSettings",
    is_first: "IsFirst",
) -> "list[Task]":
    from moorage.compute.agents.down_hosts import DeadHostsTask
    from moorage.compute.catalogue.baremetal_flavors import BareMetal, BareMetalTask
    from moorage.compute.moves.migration_worker import MigrationTask
    from moorage.compute.scheduling.build_worker import BuildTask
    from moorage.compute.scheduling.pipeline import HostSelector
    from moorage.compute.servers.delete_service import ReclaimTask
    from moorage.compute.servers.device_ports_task import DevicePortsTask
    from moorage.compute.store.meters import ComputeMeters

    clock, options, deps = parts.clock, parts.config.compute, service.deps
    selector = HostSelector(deps.engine, clock, placement, service.hosts, scheduler)
    neutron = deps.server_ports if parts.server_networks() is None else None
    return [
        *([] if neutron is None else [DevicePortsTask(deps, neutron, service.plugging)]),
        ReclaimTask(deps, service.settings, service.deletion, service.operations),
        DeadHostsTask(deps, service.settings, service.hosts, service.agents),
        BareMetalTask(BareMetal(deps, placement), clock, period_s=options.bare_metal_period_s, is_first=is_first),
        BuildTask(
            deps,
            placement,
            selector,
            worker=parts.worker("builder"),
            poll_s=options.poll_period_s,
            meters=ComputeMeters(parts.plane.metrics.registry),
        ),
        MigrationTask(deps, placement, selector, worker=parts.worker("mover"), poll_s=options.poll_period_s),
    ]


def _device_profiles(parts: Components) -> "AcceleratorClient | None":
    """A client for device profiles; None in a cloud without accelerators."""
    from moorage.accelerator.client import AcceleratorClient

    return AcceleratorClient(parts.client("accelerator")) if parts.has("accelerator") else None


def _quotas(config: Config) -> dict[str, int]:
    """Default limits, for projects without their own. Raises `StartError`."""
    from moorage.compute.model.quota import CLASS_PREFIX, DEFAULTS, is_class

    options = config.compute
    limits = {
        **DEFAULTS,
        "instances": options.quota_instances,
        "cores": options.quota_cores,
        "ram": options.quota_ram_mb,
        "key_pairs": options.quota_key_pairs,
        "metadata_items": options.quota_metadata_items,
        "server_groups": options.quota_server_groups,
        "server_group_members": options.quota_server_group_members,
    }
    for text in comma_separated(options.quota_classes):
        name, _, units = (word.strip() for word in text.partition("="))
        if not is_class(name) or not units.removeprefix("-").isdecimal():
            raise StartError(
                f"{config.source}: [compute] quota_classes has {text!r}; use CLASS=LIMIT, for example CUSTOM_GOLD=4"
            )
        limits[f"{CLASS_PREFIX}{name}"] = int(units)
    if low := sorted(name for name, limit in limits.items() if limit < -1):
        raise StartError(f"{config.source}: [compute] limit of {low[0]} is {limits[low[0]]}; use -1 for no limit")
    return limits


def build_accelerator(parts: Components) -> None:
    from moorage.accelerator.api import routes as accelerator_routes
    from moorage.accelerator.service.event_task import JOBS, EventsTask
    from moorage.accelerator.service.host_jobs import EVENTS_QUEUE
    from moorage.accelerator.service.service import AcceleratorService
    from moorage.accelerator.store.history_store import delete_before
    from moorage.accelerator.store.meters import register_gauges
    from moorage.accelerator.store.tables import jobs, workers
    from moorage.audit.audit_task import QUEUE as AUDIT
    from moorage.compute.client.compute_client import ComputeClient
    from moorage.images.glance import GlanceImages
    from moorage.jobs.store import PruningTask

    engine = parts.engine("accelerator")
    images = GlanceImages(parts.client("image")) if parts.has("image") else None
    quota = parts.config.accelerator.quota_requests
    service = AcceleratorService(engine, parts.clock, parts.ids, parts.hints, images, quota_requests=quota)
    register_gauges(parts.plane.metrics.registry, engine, parts.clock)
    is_first = parts.first_of(workers)
    compute = ComputeClient(parts.client("compute"))
    events = parts.worker("accelerator-events")
    poll_s = parts.config.accelerator.poll_period_s
    jobs_days = parts.config.accelerator.finished_jobs_days
    alone = _job_pruning(parts, "accelerator", engine, jobs, jobs_days, is_first)
    if days := _days(parts.config, "accelerator", "history_days", parts.config.accelerator.history_days):
        keep = timedelta(days=days)
        pruning = PruningTask("accelerator-history", engine, parts.clock, delete_before, keep=keep, is_first=is_first)
        alone.append(pruning)
    wakes = [EVENTS_QUEUE, AUDIT, *(task.name for task in alone)]
    parts.watch_workers("accelerator", engine, workers, JOBS.end_leases_of, wakes)
    parts.plane.tasks += alone
    parts.plane.tasks.append(EventsTask(engine, parts.clock, compute, worker=events, poll_s=poll_s))
    api = accelerator_routes.API
    if parts.config.accelerator.legacy_500:
        api = dataclasses.replace(api, error_shape=accelerator_routes.legacy_error_shape)
    parts.serve("accelerator", api, service, accelerator_routes.RULES, engine)


def _days(config: Config, section: str, name: str, days: int) -> int:
    """The value of the option. Raises `StartError`."""
    if not 0 <= days <= MAX_DAYS:
        raise StartError(f"{config.source}: [{section}] {name} is {days}; it takes 0 to {MAX_DAYS}")
    return days


def _job_pruning(
    parts: Components, service: str, engine: Engine, jobs: Table, days: int, is_first: "IsFirst"
) -> "list[Task]":
    """Deletes old finished jobs. The last audit is kept, because the metrics show it."""
    from moorage.audit.audit_task import KEY
    from moorage.jobs.store import JobStore, PruningTask

    if not _days(parts.config, service, "finished_jobs_days", days):
        return []
    remove = partial(JobStore(jobs).prune, last_of=(KEY,))
    return [PruningTask(f"{service}-jobs", engine, parts.clock, remove, keep=timedelta(days=days), is_first=is_first)]


def build_reservation(parts: Components) -> None:
    from moorage.compute.client.compute_client import ComputeClient
    from moorage.images.client import ImageLookup
    from moorage.network.client.neutron_client import NetworkClient
    from moorage.placement.client.placement_client import PlacementClient
    from moorage.reservation.api import routes as reservation_routes
    from moorage.reservation.deps import ReservationDeps, ReservationSettings
    from moorage.reservation.events.event_runner import TOPIC as RUNNER
    from moorage.reservation.service import PLACEMENT_VERSION, ReservationService
    from moorage.reservation.store.event_store import drop_claims_of
    from moorage.reservation.store.meters import show_state
    from moorage.reservation.store.tables import workers

    engine = parts.engine("reservation")
    options = dataclasses.asdict(parts.config.reservation)
    poll_s: float = options.pop("poll_period_s")
    rules, external = enforcement_settings(parts.config)
    watch_s: float = options.pop("watch_period_s")
    del options["max_holds"], options["hold_minutes_per_day"]  # `enforcement_settings` has them
    deps = ReservationDeps(
        engine,
        parts.clock,
        parts.ids,
        PlacementClient(parts.client("placement"), str(PLACEMENT_VERSION)),
        ComputeClient(parts.client("compute")),
        parts.wakeups,
        accelerators=_device_profiles(parts),
        images=ImageLookup(parts.client("image")) if parts.has("image") else None,
        network=NetworkClient(parts.client("network")) if parts.config.endpoints.network else None,
    )
    settings = ReservationSettings(
        **options, **before_end_settings(parts.config), requests_at_once=requests_at_once(parts.clock)
    )
    service = ReservationService(
        deps,
        settings,
        rules=rules,
        external=external,
        membership=membership_of(parts),
        worker=parts.this_worker.id,
    )
    parts.watch_workers("reservation", engine, workers, drop_claims_of, [RUNNER])
    show_state(parts.plane.metrics.registry, engine, parts.clock)
    parts.plane.starts.append(service.check_placement)
    parts.plane.tasks.append(service.runner(poll_s=poll_s))
    if watch_s:
        parts.plane.tasks.append(service.host_monitor(period_s=watch_s))
    parts.serve("reservation", reservation_routes.API, service, reservation_routes.RULES, engine)


def requests_at_once(clock: Clock) -> int:
    """Maximum number of parallel requests when leases start. One in virtual time, so that the order is fixed."""
    from moorage.reservation.events.parallel_requests import REQUESTS_AT_ONCE

    return REQUESTS_AT_ONCE if is_real_time(clock) else 1


def build_dashboard(parts: Components) -> None:
    from moorage.wiring import dashboard

    dashboard.build_dashboard(parts)


def build_agent(parts: Components) -> None:
    from moorage.wiring import host

    reloader = host.build_agent(parts)
    if parts.config.agent.simulated_hosts > 1:
        host.build_simulated_hosts(parts, reloader)


def build_accelerator_agent(parts: Components) -> None:
    from moorage.wiring import host

    if "agent" in parts.config.runs:
        raise StartError(
            f"{parts.config.source}: [plane] services names both agent and accelerator-agent; the agent includes "
            "accelerators: remove accelerator-agent, or remove agent if another service runs the host's servers"
        )
    host.build_accelerator_agent(parts)
