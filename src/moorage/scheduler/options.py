"""What an operator can set of the scheduler, by Nova's names where Nova has them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from moorage.scheduler.filters import Filter
from moorage.scheduler.prefilters import AggregateRules
from moorage.scheduler.weighers import Weigher


@dataclass(frozen=True)
class SchedulerSettings:
    max_placement_results: int = 1000  #: candidates that are compared at most
    #: Candidates, from all over the cloud, that are compared where that is enough; 0: as many as above.
    sample_size: int = 50
    max_attempts: int = 3  #: hosts on which a build is tried
    host_subset_size: int = 1  #: of so many best hosts one is taken at random
    multipliers: Mapping[str, float] = field(default_factory=dict)  #: {weigher: number}, where not the usual
    aggregates: AggregateRules = field(default_factory=AggregateRules)
    filters: Mapping[str, Filter] = field(default_factory=dict)  #: {name: filter}, of other packages
    weighers: Mapping[str, Weigher] = field(default_factory=dict)  #: {name: weigher}, of other packages
