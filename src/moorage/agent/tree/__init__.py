"""Provider trees of a host: the wanted one, Placement's, and the writes that make them equal. Pure.

::

    provider_tree         ProviderTree (wanted, by name) and SeenProvider (as Placement has it)
    accelerator_subtree   the accelerators' providers, added below a NUMA node or the root
    provider_tree_diff    the steps that lead from one to the other; they leave the entries of other clients alone
    drift_backoff         when to stop undoing changes that somebody else makes again and again
    update_description    the steps in an operator's words

Called by `agent.tracker` and `agent.control`; no I/O happens here.
"""
