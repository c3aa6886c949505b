"""Filters of the scheduler that other packages bring: found by their entry points, as `[scheduler] filters` names them.

One that fails says nothing of a host, so the host is left out, with a reason that names the filter: a rule that keeps
hosts apart must not be off because it is broken, and no server waits for a defect that tries will not mend.
"""

import logging
from collections.abc import Callable
from importlib.metadata import entry_points

from moorage.config import Config
from moorage.core.errors import StartError
from moorage.scheduler.filters import Filter
from moorage.scheduler.hosts import HostView, Wanted

log = logging.getLogger(__name__)

GROUP = "moorage.scheduler.filters"


def foreign_filters(config: Config) -> dict[str, Filter]:
    """{name: filter}, in the order of the option. Raises `StartError` for one that is not there or cannot be loaded."""
    names = [name.strip() for name in config.scheduler.filters.split(",") if name.strip()]
    return {name: _loaded(config, name) for name in names}


def _loaded(config: Config, name: str) -> Filter:
    where, found = f"{config.source}: [scheduler] filters has {name}", entry_points(group=GROUP)
    if name not in found.names:
        known = ", ".join(sorted(found.names)) or "none"
        raise StartError(f"{where}; installed packages have {known} in the group {GROUP}")
    try:
        passes = found[name].load()
    except Exception as error:  # whatever that package does when it is imported
        raise StartError(f"{where}, which cannot be loaded: {found[name].value}: {error}") from error
    if not callable(passes):
        raise StartError(f"{where}, which is no function: {found[name].value}")
    return _guarded(name, passes)


def _guarded(name: str, passes: Callable[[HostView, Wanted], object]) -> Filter:
    def guarded(host: HostView, wanted: Wanted) -> str | None:
        try:
            reason = passes(host, wanted)
        except Exception:  # other people's code: see above
            log.exception("a filter failed", extra={"filter": name, "host": host.name})
            return f"the filter {name} failed; the log of compute says how"
        if reason is None or isinstance(reason, str):
            return reason
        # Nova's filters answer True for a host that will do.
        log.error("a filter answers neither a reason nor None", extra={"filter": name, "answer": repr(reason)})
        return f"the filter {name} answers neither a reason nor None"

    return guarded
