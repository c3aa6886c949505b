"""The page of server operations equals the table in the code."""

from tools.operations_page import PAGE, filled


def test_the_table_equals_the_one_in_the_code():
    """R32 (accelerator-attach): behaviour per operation, including the effect on accelerators."""
    text = PAGE.read_text()
    assert text == filled(text), "write it again: .venv/bin/python tools/operations_page.py"
