"""Settings of the scheduler; they have Nova's names where Nova has them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from moorage.scheduler.filters import Filter
from moorage.scheduler.prefilters import AggregateRules
from moorage.scheduler.weighers import Weigher


@dataclass(frozen=True)
class SchedulerSettings:
    max_placement_results: int = 1000  #: maximum number of candidates compared
    #: Number of candidates, from all over the cloud, compared if a sample is enough; 0: `max_placement_results`.
    sample_size: int = 50
    max_attempts: int = 3  #: number of hosts on which a build is tried
    host_subset_size: int = 1  #: number of best hosts from which one is chosen at random
    multipliers: Mapping[str, float] = field(default_factory=dict)  #: {weigher: number}, where not the default
    aggregates: AggregateRules = field(default_factory=AggregateRules)
    filters: Mapping[str, Filter] = field(default_factory=dict)  #: {name: filter}, of other packages
    weighers: Mapping[str, Weigher] = field(default_factory=dict)  #: {name: weigher}, of other packages
