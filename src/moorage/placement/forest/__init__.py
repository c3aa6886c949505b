"""All resource providers as one immutable value, and the documents of the change log. Pure.

* `forest`: the tree structure and lookups; providers are addressed by *slot*, a small dense integer.
* `model`: `Provider`, `Inventory`, `Consumer`, `Allocation` and the arithmetic of "does it fit".
* `columns`, `inverted_index`: per resource class, trait and aggregate, arrays that searches filter.
* `memo`, `persistent_list`, `persistent_map`: they make a changed forest cheap, because it shares all unchanged parts
  with its predecessor, including results computed from them.
* `change_documents`, `change_events`: an entry of the change log as it is written, and as it is read.

Not here: keeping the forest equal to the database (`sync`), and searching it (`search`).
"""
