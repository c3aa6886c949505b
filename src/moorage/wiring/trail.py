"""The audit trail of a process, by [trail]."""

import socket

from moorage.config import Config
from moorage.core.clock import Clock
from moorage.core.errors import StartError
from moorage.telemetry.metrics import Metrics
from moorage.telemetry.syslog import SyslogSink
from moorage.telemetry.trail import MAX_ENTRY_BYTES, Trail, TrailFile, TrailSink

_MOST_KEPT = 1000
_MIB = 1 << 20


def open_trail(config: Config, clock: Clock, metrics: Metrics) -> Trail | None:
    """None where none is kept. Nothing is opened yet. Raises `StartError`."""
    options = config.trail
    if not options.enabled:
        return None
    sinks: list[TrailSink] = []
    if options.path:
        rotate_bytes = int(options.rotate_mb * _MIB)
        if rotate_bytes < MAX_ENTRY_BYTES:
            raise StartError(f"{config.source}: [trail] rotate_mb is {options.rotate_mb:g}; it must be 0.004 at least")
        if not 1 <= options.keep <= _MOST_KEPT:
            raise StartError(f"{config.source}: [trail] keep is {options.keep}; it takes 1 to {_MOST_KEPT}")
        sinks.append(TrailFile(config.state / options.path, rotate_bytes=rotate_bytes, keep=options.keep))
    if options.syslog:
        sinks.append(SyslogSink(options.syslog, clock))
    if not sinks:
        raise StartError(f"{config.source}: [trail] names neither path nor syslog; set enabled = false for no trail")
    return Trail(
        sinks,
        clock,
        observer=socket.gethostname(),
        required=options.required,
        agents=options.agents,
        knows_services=config.identity.mode != "none",
        lost=lambda sink: metrics.trail_losses.labels(sink).inc(),
    )
