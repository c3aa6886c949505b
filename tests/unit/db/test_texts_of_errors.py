"""Messages to callers about errors of a database."""

import psycopg
from sqlalchemy.exc import OperationalError

from moorage.core.errors import Unavailable
from moorage.db.errors import translate_error


def test_the_error_of_a_refused_connection_has_the_reason_without_the_address():
    words = 'connection failed: connection to server at "10.1.2.3", port 5432 failed: FATAL:  sorry, too many clients already'
    refused = translate_error(OperationalError("SELECT 1", {}, psycopg.OperationalError(words)))
    assert isinstance(refused, Unavailable)
    assert "sorry, too many clients already" in refused.message
    assert "10.1.2.3" not in refused.message
