"""The dependencies of the accelerator service's use cases: database, clock, ids, jobs and images."""

from dataclasses import dataclass

from sqlalchemy import Engine

from moorage.accelerator.service.host_jobs import AcceleratorJobs
from moorage.core.clock import Clock
from moorage.core.ids import Ids
from moorage.images.base import ImageSource


@dataclass(frozen=True)
class AcceleratorDeps:
    """`images`: for bitstreams; None if the service has no image source."""

    engine: Engine
    clock: Clock
    ids: Ids
    jobs: AcceleratorJobs
    images: ImageSource | None = None
