"""The guide to server operations says what the table of the code says."""

from tools.operations_page import PAGE, filled


def test_the_table_is_the_codes():
    """R32 (accelerator-attach): behaviour per operation, what becomes of accelerators included."""
    text = PAGE.read_text()
    assert text == filled(text), "write it again: .venv/bin/python tools/operations_page.py"
