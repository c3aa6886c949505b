"""Tables that the viewer sorts and filters."""

from moorage.dashboard.views.tables import MAX_WANTED, TableColumn, TableOrder, table_rows

COLUMNS = (TableColumn("name", "Name", str),)


def by_name(rows, *, descending=False, wanted=""):
    return table_rows(rows, COLUMNS, TableOrder("name", descending), wanted)


def test_numbers_in_texts_are_sorted_as_numbers_and_empty_texts_are_last():
    texts = ["compute-10", "", "compute-2", "compute-02b", "Compute-1"]
    assert by_name(texts) == ["Compute-1", "compute-2", "compute-02b", "compute-10", ""]
    assert by_name(texts, descending=True) == ["compute-10", "compute-02b", "compute-2", "Compute-1", ""]


def test_a_number_of_any_length_can_be_sorted():
    """Python refuses to read an integer of more than 4,300 digits."""
    long = "9" * 5_000
    assert by_name([long, "10", "0" * 5_000 + "7", "\N{SUPERSCRIPT TWO}"]) == [
        "0" * 5_000 + "7", "10", long, "\N{SUPERSCRIPT TWO}"
    ]  # fmt: skip


def test_a_filter_has_a_limited_length():
    assert by_name(["a", "b"], wanted="a") == ["a"]
    assert by_name(["a", "b"], wanted="a " * MAX_WANTED + "b") == ["a"]
