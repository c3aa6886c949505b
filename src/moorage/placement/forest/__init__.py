"""All resource providers as one immutable value, and the documents of the change log. Pure.

* `forest`: the tree structure and lookups; providers are addressed by *slot*, a small dense integer.
* `model`: `Provider`, `Inventory`, `Consumer`, `Allocation`, and whether an amount fits.
* `columns`, `inverted_index`: per resource class, trait and aggregate, arrays that searches filter.
* `persistent_list`, `memo`: with these, a changed forest shares its unchanged providers with its predecessor, and the
  results computed from unchanged parts.
* `change_documents`, `change_events`: entries of the change log for writers and for readers.

Not here: keeping the forest equal to the database (`sync`), and searching it (`search`).
"""
