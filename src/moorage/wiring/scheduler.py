"""The scheduler as `[scheduler]` has it, with the filters and weighers that other packages bring by their entry points.

A filter that fails says nothing of a host, so the host is left out, with a reason that names the filter: a rule that
keeps hosts apart must not be off because it is broken, and no server waits for a defect that tries will not mend. A
weigher only says which host is the better one: where it fails it says nothing, and the others decide.
"""

import logging
import math
from collections.abc import Callable
from functools import partial
from importlib.metadata import EntryPoints, entry_points
from typing import Any

from moorage.config import Config, comma_separated
from moorage.core.errors import StartError
from moorage.scheduler.filters import Filter, HostState, ServerRequirements
from moorage.scheduler.options import SchedulerSettings
from moorage.scheduler.prefilters import AggregateRules
from moorage.scheduler.weighers import WEIGHERS, HostFacts, Weigher, WeigherInput

log = logging.getLogger(__name__)

FILTERS_GROUP = "moorage.scheduler.filters"
WEIGHERS_GROUP = "moorage.scheduler.weighers"


def scheduler_options(config: Config) -> SchedulerSettings:
    """Raises `StartError` for a multiplier, a filter or a weigher that is none."""
    options, weighers = config.scheduler, _weighers(config)
    return SchedulerSettings(
        max_placement_results=options.max_placement_results,
        sample_size=options.sample_size,
        max_attempts=options.max_attempts,
        host_subset_size=options.host_subset_size,
        multipliers=_multipliers(config, [*WEIGHERS, *weighers]),
        aggregates=AggregateRules(
            options.limit_tenants_to_placement_aggregate,
            options.placement_aggregate_required_for_tenants,
            options.enable_isolated_aggregate_filtering,
        ),
        filters=_filters(config),
        weighers=weighers,
    )


def _multipliers(config: Config, known: list[str]) -> dict[str, float]:
    multipliers: dict[str, float] = {}
    for text in comma_separated(config.scheduler.weight_multipliers):
        name, _, number = (word.strip() for word in text.partition("="))
        try:
            multipliers[name] = float(number)
        except ValueError:
            name = ""
        if name not in known:
            raise StartError(
                f"{config.source}: [scheduler] weight_multipliers has {text!r}; write ram=-1.0; weighers are "
                + ", ".join(known)
            )
    return multipliers


def _filters(config: Config) -> dict[str, Filter]:
    """{name: filter}, in the order of the option."""
    found = _loaded(config, "filters", FILTERS_GROUP, config.scheduler.filters)
    return {name: partial(_passes, name, passes) for name, passes in found.items()}


def _weighers(config: Config) -> dict[str, Weigher]:
    """{name: weigher}. A name of ours would be two weighers with one factor."""
    found = _loaded(config, "weighers", WEIGHERS_GROUP, config.scheduler.weighers)
    if ours := [name for name in found if name in WEIGHERS]:
        raise StartError(
            f"{config.source}: [scheduler] weighers has {ours[0]}, the name of a weigher of Moorage's own; its package "
            "must call it something else"
        )
    return {name: partial(_weighs, name, weigher) for name, weigher in found.items()}


def _loaded(config: Config, option: str, group: str, text: str) -> dict[str, Callable[..., object]]:
    """{name: function}, in the order of the option. Raises `StartError` for what is not there or cannot be loaded."""
    loaded: dict[str, Callable[..., object]] = {}
    names = comma_separated(text)
    # Reads the metadata of every installed package, 20 ms in all: not where nothing is asked for.
    there = entry_points(group=group) if names else EntryPoints()
    for name in names:
        where = f"{config.source}: [scheduler] {option} has {name}"
        if name not in there.names:
            known = ", ".join(sorted(there.names)) or "none"
            raise StartError(f"{where}; installed packages have {known} in the group {group}")
        try:
            function: Any = there[name].load()
        except Exception as error:  # whatever that package does when it is imported
            raise StartError(f"{where}, which cannot be loaded: {there[name].value}: {error}") from error
        if not callable(function):
            raise StartError(f"{where}, which is no function: {there[name].value}")
        loaded[name] = function
    return loaded


def _passes(name: str, passes: Callable[..., object], host: HostState, wanted: ServerRequirements) -> str | None:
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


def _weighs(name: str, weigher: Callable[..., object], facts: HostFacts, task: WeigherInput) -> float:
    """NaN where it says nothing."""
    try:
        number = weigher(facts, task)
    except Exception:  # other people's code: see above
        log.exception("a weigher failed", extra={"weigher": name})
        return math.nan
    if isinstance(number, int | float) and math.isfinite(number):
        return float(number)
    log.error("a weigher answers no number", extra={"weigher": name, "answer": repr(number)})
    return math.nan
