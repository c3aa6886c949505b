"""The texts of error pages."""

import pytest

from moorage.core.errors import Forbidden, NotFound
from moorage.dashboard.pages import error_page, missing_of, sentence


@pytest.mark.parametrize(
    ("text", "shown"),
    [("user name or password is wrong", "User name or password is wrong"), ("compute-1 is down", "compute-1 is down"),
     ("'x' is no time", "'x' is no time"), ("Done", "Done"), ("", "")],
)  # fmt: skip
def test_a_sentence_begins_with_a_capital_letter_unless_it_begins_with_a_name(text, shown):
    assert sentence(text) == shown


def test_an_address_names_what_is_missing():
    assert [(one.kind, one.name) for one in map(missing_of, ("/leases/x/change", "/leases/holds/y", "/hosts/c-1"))] == [
        ("lease", "x"),
        ("hold", "y"),
        ("host", "c-1"),
    ]
    assert [missing_of(path) for path in ("", "/leases", "/leases/", "/explain")] == [None] * 4


def test_a_message_about_something_else_is_kept():
    seen = error_page(NotFound("Image 12 could not be found"), "/leases/abc/launch").values
    assert (seen["message"], seen["back"]) == ("Image 12 could not be found", None)
    assert error_page(NotFound("Instance ABC could not be found"), "/servers/abc").values["message"] == (
        "There is no server abc"
    )


@pytest.mark.parametrize(
    ("session", "projects", "code", "advice"),
    [(False, False, "x.y", []), (True, False, "x.y", ["administrator"]), (True, True, "x.y", ["administrator", "switch"]),
     (True, True, "dashboard.form_token", []), (True, True, "dashboard.origin", [])],
)  # fmt: skip
def test_advice_for_a_refusal_is_what_this_person_can_do(session, projects, code, advice):
    error = Forbidden("this is refused", code=code)
    seen = str(error_page(error, "/hosts", has_session=session, has_projects=projects).values["advice"])
    assert [word for word in ("administrator", "switch") if word in seen] == advice
