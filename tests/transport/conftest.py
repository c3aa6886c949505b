import pytest

from tests.servers import postgres_url, temporary_vhost
from tests.transport.ways import Far, Near


@pytest.fixture(
    params=[
        "in process",
        pytest.param("postgresql", marks=pytest.mark.postgresql),
        pytest.param("rabbit", marks=pytest.mark.rabbit),
    ]
)
def way(request):
    if request.param == "in process":
        way = Near()
    elif request.param == "postgresql":
        way = Far(postgres_url())
    else:
        way = Far(request.getfixturevalue("vhost"))
    yield way
    way.close()


@pytest.fixture(scope="module")
def vhost():
    with temporary_vhost() as url:
        yield url
