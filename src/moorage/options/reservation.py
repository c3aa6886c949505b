"""Sections [reservation], [enforcement] and [before_end]: leases, their limits, and what happens before their end."""

from dataclasses import dataclass

from moorage.options.declaration import option


@dataclass(frozen=True)
class ReservationOptions:
    freepool: str = option("freepool", "Name of the aggregate for registered hosts that no lease uses.")
    minutes_before_end: int = option(
        60, "Minutes before the end at which before_end_lease is due, if the lease sets no time."
    )
    cleaning_time_s: int = option(0, "Seconds for which a host stays reserved after each lease.")
    poll_period_s: float = option(5.0, "Seconds between two searches for leases that another process wrote.")
    watch_period_s: float = option(
        60.0, "Seconds between two checks of which hosts are up. 0: never; then no lease is healed."
    )
    healing_interval_s: int = option(
        3600, "Leases that start within this many seconds are moved away from a failed host."
    )
    start_deadline_s: int = option(
        3600,
        "Seconds after the start date until an unfinished start is given up; at most until the end of the lease.",
    )
    hold_s: int = option(600, "Seconds for which a hold keeps resources.")
    max_holds: int = option(10, "Maximum number of holds of a project, and of a user, at the same time.")
    hold_minutes_per_day: int = option(
        240,
        "Maximum time in minutes that the holds of a project, and of a user, may last together in 24 hours. A hold "
        "counts until it is released or expires, at least one minute, and not at all if it becomes a lease. -1: no "
        "limit.",
    )
    keep_deleted_days: int = option(
        90, "Days for which the project of a deleted lease, and administrators, can read the lease and its timeline."
    )
    compat_server_groups: bool = option(
        False,
        "Create a server group for each reservation with affinity or anti-affinity, for clients that refer to it.",
    )


@dataclass(frozen=True)
class EnforcementOptions:
    enabled_filters: str = option(
        "", "Filters of Blazar that leases must pass, comma-separated: MaxLeaseDurationFilter, ExternalServiceFilter."
    )
    max_lease_duration: int = option(
        -1, "MaxLeaseDurationFilter: maximum duration of a lease, in seconds. -1: no limit."
    )
    max_lease_duration_exempt_project_ids: str = option("", "IDs of projects without this limit, comma-separated.")
    external_service_base_endpoint: str = option(
        "", "ExternalServiceFilter: URL of a service that must approve leases."
    )
    external_service_check_create_endpoint: str = option(
        "", "URL of its check for new leases, if not below the base URL."
    )
    external_service_check_update_endpoint: str = option(
        "", "URL of its check for changed leases, if not below the base URL."
    )
    external_service_on_end_endpoint: str = option(
        "", "URL of its notification for ended leases, if not below the base URL."
    )
    external_service_token: str = option("", "Token to send to it as X-Auth-Token.")
    limits: str = option(
        "",
        "Maximum amounts that a project may have reserved at any one time: VCPU=100,HOSTS=2. HOSTS counts whole "
        "hosts, which also count with all that they have; FLOATING_IPS counts addresses; LEASES counts leases that "
        "have not ended, and holds. Other classes have no limit.",
    )
    limit_hours: str = option(
        "", "Maximum amounts times hours that a project may have reserved in a period: VCPU=5000."
    )
    user_limits: str = option("", "The same as limits for each user, with the leases and holds of all projects.")
    user_limit_hours: str = option("", "The same as limit_hours for each user, with the leases of all projects.")
    limit_period_days: int = option(
        30,
        "Length in days of the period for limit_hours and user_limit_hours; the limit applies to every period of this "
        "length.",
    )


@dataclass(frozen=True)
class BeforeEndOptions:
    webhook_origins: str = option(
        "",
        "Origins to which webhooks of leases may be sent: https://hooks.example.org,https://ci.example.org:8443. "
        "Redirects are not followed. If empty, none.",
    )
    smtp_server: str = option("", "Mail server for mail of leases, host:port. If empty, no mail is sent.")
    smtp_security: str = option(
        "starttls", "Encryption of the connection to the mail server.", choices=("starttls", "tls", "none")
    )
    smtp_user: str = option("", "User name at the mail server. If empty, no login.")
    smtp_password: str = option("", "Password of that user. It is never sent if smtp_security is none.")
    mail_sender: str = option("", "Sender address of the mail.")
    mail_domains: str = option(
        "",
        "Domains to which mail may be sent, comma-separated: example.org,example.com. *: any domain. If empty, none.",
    )
    lent_hosts: str = option(
        "nothing",
        "What happens before the end to servers on reserved hosts, if the reservation's before_end is default.",
        choices=("nothing", "snapshot"),
    )
