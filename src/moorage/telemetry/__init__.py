"""Shows operators a running process: logs, metrics, traces and the audit trail.

In it: JSON log lines (`logs`), the Prometheus registry and its gauges (`metrics`, `request_meter`), spans (`tracing`
without and `otel` with OpenTelemetry), and the audit trail: written by `trail` to a file and to syslog, read by
`trail_reading`.
Not in it: the metrics of one service (its `meters` module), what an audit entry says about a request
(`moorage.wire.audit_entries`), and the HTTP endpoint for Prometheus (`moorage.wire.middleware`).
Callers: every package that logs or counts; `moorage.wiring` switches traces and the trail on.
"""
