"""All resource providers as one immutable value, and the documents of the change log. Pure.

* `forest`: the tree structure and lookups; providers are addressed by *slot*, a small dense integer. Its `ForestMemo`
  keeps results computed from parts of a forest while those parts stay the same objects.
* `model`: `Provider`, `Inventory`, `Consumer`, `Allocation`, and whether an amount fits.
* `columns`, `inverted_index`: per resource class, trait and aggregate, arrays that searches filter.
* `persistent_list`: with it, a changed forest shares its unchanged providers with its predecessor.
* `change_entries`: entries of the change log, as they are written and as clients read them.

Not here: keeping the forest equal to the database (`sync`), and searching it (`search`).
"""
