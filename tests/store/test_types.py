"""Values are read as they were stored, on all three databases."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moorage.db.session import read, write
from moorage.db.types import TABLE_OPTIONS, Json, UtcDateTime, Uuid, new_metadata
from tests.databases import Schema
from tests.migrated import engine_with
from tests.store.conftest import on_every_database

METADATA = new_metadata()
THING = sa.Table(
    "thing",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("at", UtcDateTime),
    sa.Column("document", Json),
    sa.Column("uuid", Uuid()),
    **TABLE_OPTIONS,
)


SCHEMA = Schema("things-of-all-types", METADATA.create_all)


@pytest.fixture
def things(kind):
    with engine_with(SCHEMA, kind) as engine:
        yield engine


def stored(engine, **values):
    with write(engine) as connection:
        connection.execute(THING.delete())
        connection.execute(THING.insert().values(id=1, **values))
    with read(engine) as connection:
        row = connection.execute(sa.select(THING)).one()
    return tuple(getattr(row, name) for name in values)


@on_every_database
def test_times_keep_their_microseconds_and_are_read_as_utc(things):
    moment = datetime(2026, 2, 28, 23, 59, 59, 999999, tzinfo=UTC)
    [back] = stored(things, at=moment)
    assert back == moment
    assert back.tzinfo is UTC


@on_every_database
def test_times_of_another_zone_are_converted_to_utc(things):
    moment = datetime(2026, 3, 1, 1, 30, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    [back] = stored(things, at=moment)
    assert back.isoformat() == "2026-02-28T20:00:00+00:00"


@on_every_database
def test_times_are_compared_to_the_microsecond(things):
    moment = datetime(2026, 3, 1, 12, 0, 0, 500, tzinfo=UTC)
    stored(things, at=moment)
    with read(things) as connection:
        for other, expected in ((moment, True), (moment - timedelta(microseconds=1), False)):
            assert connection.execute(sa.select(THING.c.at <= other)).scalar() == expected


def test_a_time_without_a_zone_is_refused(things):
    with pytest.raises(sa.exc.StatementError, match="has no time zone"):
        stored(things, at=datetime(2026, 3, 1))  # noqa: DTZ001 - the test needs a time without a zone


@on_every_database
def test_null_is_read_as_none(things):
    assert stored(things, at=None, document=None, uuid=None) == (None, None, None)


documents = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(codec="utf-8"), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(document=st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=9), documents, max_size=4))
@on_every_database
def test_json_documents_read_back_the_same(things, document):
    assert stored(things, document=document) == (document,)


@on_every_database
def test_a_json_document_of_a_megabyte_reads_back_the_same(things):
    document = {"domain": "🛥" * 300_000}
    assert stored(things, document=document) == (document,)
