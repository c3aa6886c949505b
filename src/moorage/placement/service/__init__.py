"""Use cases, one module per subject. They read the forest, decide with `rules` and `search`, and write through `sync`."""
