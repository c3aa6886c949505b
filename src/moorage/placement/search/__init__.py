"""Allocation candidates: from the query of ``GET /allocation_candidates`` to rows of provider slots. Pure.

    query string
      -> request              request groups (`query` parses the values)
      -> requirements         one requirement per class of the unsuffixed group, one per granular group
      -> single_choice        each class is on one provider per tree: array filters find the candidates
         or
      -> layout               the members of each anchor (tree root): its tree and the providers that share with it
      -> equivalence_classes  anchors that the request cannot tell apart share one *situation*
      -> tree_search          depth-first search of each situation, within the `search_budget`
      -> candidates           translates the results to each anchor, drops duplicates, stops at the limit

`masks` has the array filters of all steps and those of ``GET /resource_providers``; `constraints` has a group's single
conditions for `explain`. Callers: `service.search_service` and `explain`.
"""
