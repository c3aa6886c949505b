"""Placement: resource providers, their inventories, the allocations of consumers, and allocation candidates.

Wire-compatible with OpenStack Placement 1.0 to 1.39. Every process keeps all providers in memory as an immutable
`forest`; reads and searches use it, and each write is decided on it and committed under one change number.

    api        HTTP: routes, handlers, schemas
    service    use cases, one module per subject          importing   takes over an OpenStack Placement database
    sync       keeps the process's forest exact; commits every write
    store      SQL                                        explain     why a request has no candidates
    rules      decides writes                             search      finds allocation candidates
    forest     the providers as an immutable value

Imports only go down this list. `forest`, `search`, `rules` and `explain` are pure: no I/O, no clock. Other packages
of Moorage import only `client`, which uses the public API.
"""
