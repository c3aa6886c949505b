"""The bus that hints go by: PostgreSQL's NOTIFY or RabbitMQ. Without it all goes on, a poll period later."""

import re
from collections.abc import Iterator

from moorage.cli.doctor.finding import CheckFinding, fine, warning
from moorage.config import Config
from moorage.core.errors import MoorageError
from moorage.jobs.wakeups import try_link


def check(config: Config) -> Iterator[CheckFinding]:
    url = config.plane.hints
    if not url:
        yield fine("bus", "no bus: hints stay in this process, others poll")
        return
    shown = re.sub(r":[^:@/]*@", ":***@", url)
    try:
        try_link(url)
    except MoorageError as error:
        remedy = "start it, or correct [plane] hints; until then hosts and workers poll"
        yield warning("bus", error.message, shown, remedy)
    else:
        yield fine("bus", "a hint can be sent and listened for", shown)
