"""The scheduler's settings from [scheduler], with filters and weighers from other packages' entry points, and the rules
for extra specs from [compute].


A filter that fails rejects the host, with a reason that names the filter: a rule that separates hosts must not be
ignored because it is broken, and the server must not wait for a defect that retries do not fix. A weigher that fails
is ignored for that host, since it only ranks hosts.
"""

import logging
import math
from collections.abc import Callable
from functools import partial
from importlib.metadata import EntryPoints, entry_points

from moorage.config import Config, comma_separated
from moorage.core.errors import StartError
from moorage.core.names import is_accelerator_class
from moorage.scheduler.filters import Filter, HostState, ServerRequirements
from moorage.scheduler.options import SchedulerSettings
from moorage.scheduler.prefilters import AggregateRules
from moorage.scheduler.spec_rules import SpecRules
from moorage.scheduler.spec_table import HonouredBy, image_entry, is_of_known_namespace, similar_keys, spec_entry
from moorage.scheduler.weighers import WEIGHERS, HostFacts, Weigher, WeigherInput

log = logging.getLogger(__name__)

FILTERS_GROUP = "moorage.scheduler.filters"
WEIGHERS_GROUP = "moorage.scheduler.weighers"


def scheduler_options(config: Config) -> SchedulerSettings:
    """Raises `StartError` for an invalid multiplier, filter or weigher."""
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


def spec_rules(config: Config) -> SpecRules:
    """Raises `StartError` for an unknown key, and for an alias without a device profile or an accelerator class."""
    ignored = comma_separated(config.compute.ignored_extra_specs)
    for key in ignored:
        entries = [entry for entry in (spec_entry(key), image_entry(key)) if entry is not None]
        if not entries and is_of_known_namespace(key):
            near = " or ".join(similar_keys(key))
            raise StartError(
                f"{config.source}: [compute] ignored_extra_specs has {key}, and there is no such key; remove it, or "
                f"correct its name{f': there is {near}' if near else ''}"
            )
        if not any(entry.by is HonouredBy.NOTHING for entry in entries):
            raise StartError(
                f"{config.source}: [compute] ignored_extra_specs has {key}, but servers with it are not refused; "
                "docs/reference/extra-specs.md has the keys that are"
            )
    aliases: dict[str, str] = {}
    for text in comma_separated(config.compute.pci_aliases):
        alias, _, target = (word.strip() for word in text.partition("="))
        if not alias or not target or (target.startswith("CUSTOM_") and not is_accelerator_class(target)):
            raise StartError(
                f"{config.source}: [compute] pci_aliases has {text!r}; write <alias>=<device profile>, or "
                "<alias>=CUSTOM_ACCELERATOR_<TYPE>: hosts attach devices of such classes only"
            )
        aliases[alias] = target
    return SpecRules(frozenset(ignored), aliases)


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
                f"{config.source}: [scheduler] weight_multipliers has {text!r}; use a form such as ram=-1.0; weighers "
                "are " + ", ".join(known)
            )
    return multipliers


def _filters(config: Config) -> dict[str, Filter]:
    """{name: filter}, in the order of the option."""
    found = _loaded(config, "filters", FILTERS_GROUP, config.scheduler.filters)
    return {name: partial(_passes, name, passes) for name, passes in found.items()}


def _weighers(config: Config) -> dict[str, Weigher]:
    """{name: weigher}. The name of a built-in weigher is refused: one multiplier would apply to both."""
    found = _loaded(config, "weighers", WEIGHERS_GROUP, config.scheduler.weighers)
    if ours := [name for name in found if name in WEIGHERS]:
        raise StartError(
            f"{config.source}: [scheduler] weighers has {ours[0]}, the name of a built-in weigher; its package must "
            "rename it"
        )
    return {name: partial(_weighs, name, weigher) for name, weigher in found.items()}


def _loaded(config: Config, option: str, group: str, text: str) -> dict[str, Callable[..., object]]:
    """{name: function}, in the order of the option. Raises `StartError` for a missing or broken entry point."""
    loaded: dict[str, Callable[..., object]] = {}
    names = comma_separated(text)
    # Reads the metadata of all installed packages (20 ms), so only if the option is set.
    available = entry_points(group=group) if names else EntryPoints()
    for name in names:
        where = f"{config.source}: [scheduler] {option} has {name}"
        if name not in available.names:
            known = ", ".join(sorted(available.names)) or "none"
            raise StartError(f"{where}; installed packages have {known} in the group {group}")
        try:
            function: object = available[name].load()
        except Exception as error:  # an operator's plug-in can raise anything; the StartError names it
            raise StartError(f"{where}, which cannot be loaded: {available[name].value}: {error}") from error
        if not callable(function):
            raise StartError(f"{where}, which is not a function: {available[name].value}")
        loaded[name] = function
    return loaded


def _passes(name: str, passes: Callable[..., object], host: HostState, wanted: ServerRequirements) -> str | None:
    try:
        reason = passes(host, wanted)
    except Exception:  # an operator's plug-in can raise anything; it must not stop the scheduler
        log.exception("a filter failed", extra={"filter": name, "host": host.name})
        return f"the filter {name} failed; the log of compute says how"
    if reason is None or isinstance(reason, str):
        return reason
    # Nova's filters return True for a suitable host.
    log.error("a filter returned neither a reason nor None", extra={"filter": name, "answer": repr(reason)})
    return f"the filter {name} answers neither a reason nor None"


def _weighs(name: str, weigher: Callable[..., object], facts: HostFacts, weigher_input: WeigherInput) -> float:
    """The weight; NaN if the weigher failed."""
    try:
        number = weigher(facts, weigher_input)
    except Exception:  # an operator's plug-in can raise anything; it must not stop the scheduler
        log.exception("a weigher failed", extra={"weigher": name})
        return math.nan
    if isinstance(number, int | float) and math.isfinite(number):
        return float(number)
    log.error("a weigher did not return a number", extra={"weigher": name, "answer": repr(number)})
    return math.nan
