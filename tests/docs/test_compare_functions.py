"""The comparison of two revisions finds every change except renames that the tables list."""

import ast

import pytest

from tools.compare_functions import Tables, bodies_in, unmatched

BEFORE = """
LIMIT = 5

def take(store, number=LIMIT):
    '''Takes so many.'''
    found = [one for one in store.rows('SELECT id FROM jobs') if one.state == "ready"]
    if len(found) > number:
        raise ValueError(f"{len(found)} is more than {number}")
    return found
"""

AFTER = """
MAX_ROWS = 5

def claim_rows(jobs, limit=MAX_ROWS):
    ready = [row for row in jobs.list_rows('SELECT id FROM jobs') if row.state == "ready"]
    if len(ready) > limit:
        raise ValueError(f"there are {len(ready)} jobs, at most {limit} are allowed")
    return ready
"""

TABLE = ("a:take claim_rows", "a:LIMIT MAX_ROWS", "a:rows list_rows", "a:put store_row", "a:drop delete_row")


def differences(before, after, *table):
    tables = Tables(table)
    sides = (list(bodies_in("a:", ast.parse(source), tables.texts)) for source in (before, after))
    return tuple([body.where for body in side] for side in unmatched(tables, *sides))


def test_a_rename_that_is_in_the_tables_is_not_listed():
    assert differences(BEFORE, AFTER, *TABLE) == ([], [])


def test_a_rename_that_is_not_in_the_tables_is_listed():
    assert differences(BEFORE, AFTER, *TABLE[:2]) == (["a:take"], ["a:claim_rows"])


@pytest.mark.parametrize(
    ("was", "became"),
    [
        ("> limit", ">= limit"),
        ("FROM jobs", "FROM rows"),
        ('"ready"', '"claimed"'),
        ("return ready", "return ready[:1]"),
        ("limit=MAX_ROWS", "limit=None"),
        ("jobs.list_rows", "jobs.delete_row"),
    ],
)
def test_every_other_change_of_a_function_is_listed(was, became):
    assert differences(BEFORE, AFTER.replace(was, became), *TABLE) == (["a:take"], ["a:claim_rows"])


def test_a_constant_with_another_value_is_listed():
    assert differences(BEFORE, AFTER.replace("= 5", "= 6"), *TABLE) == (["a:LIMIT"], ["a:MAX_ROWS"])


def test_a_call_of_another_function_with_the_same_old_name_is_listed():
    table = ("a:show show_host", "a:show show_lease")
    before = "def work(x):\n    return x.show_host()\n"
    assert differences(before, before.replace("show_host", "show_lease"), *table) == (["a:work"], ["a:work"])


def test_functions_without_a_statement_are_not_compared():
    assert differences("def close(self): ...\n", "def stop(self):\n    raise NotImplementedError\n") == ([], [])


def test_a_constant_that_replaces_a_literal_is_compared_by_its_value():
    before = "def begin(move):\n    return move.step == 'go-back'\n"
    after = "class Step:\n    BACK = '%s'\n\ndef begin(move):\n    return move.step == Step.BACK\n"
    assert differences(before, after % "go-back", "constant go-back Step.BACK") == ([], ["a:Step"])
    assert "a:Step.BACK" in differences(before, after % "back", "constant go-back Step.BACK")[1]


def test_a_class_with_changed_fields_is_listed():
    before = "class Job:\n    id: str\n    epoch: int\n"
    assert differences(before, "class Job:\n    epoch: int\n    id: str\n") == (["a:Job"], ["a:Job"])
    assert differences(before, "class Job:\n    job_id: str\n    epoch: int\n", "id job_id") == ([], [])
