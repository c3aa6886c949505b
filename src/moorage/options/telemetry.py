"""Sections [audit], [trail] and [tracing]: the comparison of the services, the audit trail, and traces."""

from dataclasses import dataclass

from moorage.options.declaration import option


@dataclass(frozen=True)
class AuditOptions:
    period_s: float = option(
        3600.0,
        "Seconds between two audits in the background, which compare the records of the services and repair "
        "nothing; at least 60. One of the processes that run compute (or else accelerators) does it. 0: never.",
    )


@dataclass(frozen=True)
class TrailOptions:
    enabled: bool = option(True, "Keep an audit trail: who changed what through the APIs, and with which result.")
    path: str = option(
        "trail.jsonl",
        "File of the audit trail, relative to state_path. If empty, no file; the trail goes to syslog only.",
    )
    rotate_mb: float = option(100.0, "Size in MiB above which the file is rotated.")
    keep: int = option(10, "Number of rotated files to keep, 1 to 1000. Older files are deleted.")
    syslog: str = option(
        "", "Also send entries to a syslog daemon: /dev/log, or udp://host:514. If empty, they are not sent."
    )
    required: bool = option(
        False,
        "Write the entry before the change, and refuse the change with 503 if the entry cannot be written. If "
        "false, the change is made, and the metric moorage_trail_lost_entries_total counts the lost entry.",
    )
    agents: bool = option(
        False,
        "Also record routine calls of host agents: heartbeats, reports of devices and domains, and claims of "
        "jobs. Refused calls are recorded in any case.",
    )


@dataclass(frozen=True)
class TracingOptions:
    endpoint: str = option(
        "",
        "URL of an OTLP/HTTP receiver for traces, http://127.0.0.1:4318. If empty, there are no traces. Needs "
        "moorage[otel].",
    )
    sample: float = option(
        1.0,
        "Share of traces to keep, 0 to 1, for traces that begin in this process. If a caller has decided, its "
        "decision applies.",
    )
    service_name: str = option("moorage", "Name of this process in traces.")
    statements: bool = option(False, "Also trace each statement of a database transaction.")
