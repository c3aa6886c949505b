import pytest

from moorage.core.backoff import Backoff
from moorage.jobs import wakeups
from tests.servers import postgres_url, rabbit_url
from tests.transport.ways import Far, Near


@pytest.fixture(
    params=[
        "in process",
        pytest.param("postgresql", marks=pytest.mark.postgresql),
        pytest.param("rabbit", marks=pytest.mark.rabbit),
    ]
)
def way(request, monkeypatch):
    # How often a thread of hints checks whether it must stop or listen to another queue, and how soon it reconnects.
    monkeypatch.setattr(wakeups, "ROUND_S", 0.05)
    monkeypatch.setattr(wakeups, "BACKOFF", Backoff(first_s=0.02, longest_s=wakeups.BACKOFF.longest_s))
    if request.param == "in process":
        way = Near()
    else:
        way = Far({"postgresql": postgres_url, "rabbit": rabbit_url}[request.param]())
    yield way
    way.close()
