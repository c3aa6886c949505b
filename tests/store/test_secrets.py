"""No exception contains values of statements, because exceptions are logged and some are sent to clients."""

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from moorage.db.engine import open_engine, open_read_only_engine


@pytest.mark.parametrize("opened", [open_engine, open_read_only_engine])
def test_the_error_of_a_failed_statement_does_not_contain_its_values(engine, opened):
    engine.connect().close()  # makes SQLite's file
    url = engine.url.set(drivername=engine.url.get_backend_name()).render_as_string(hide_password=False)
    other = opened(url)
    with other.connect() as connection, pytest.raises(SQLAlchemyError, match="nowhere") as failed:
        connection.execute(sa.text("INSERT INTO nowhere VALUES (:a)"), {"a": "geheim"})
    assert "geheim" not in str(failed.value)
    other.dispose()
