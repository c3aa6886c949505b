"""Provider trees of a host: the wanted one, the one in Placement, and the writes that make them equal. Pure.

::

    provider_tree         ProviderTree (wanted, by name), SeenProvider (as Placement has it), and the accelerators'
                          providers, added below a NUMA node or the root
    provider_tree_diff    the writes that make Placement equal to the wanted tree, except for other clients' entries;
                          how long to wait before undoing a change that another client makes repeatedly
    update_description    the changes of an update, for operators

Called by `agent.tracker` and `agent.control`; no I/O happens here.
"""
