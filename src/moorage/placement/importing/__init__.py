"""Imports an existing OpenStack Placement database (tables of 16.0.0) in one transaction, or rehearses the import.

    placement_db (SELECT only) -> importer -> rules: keep, repair or leave out each row, with a finding -> target

* `rules` is pure. `target` writes Moorage's tables and the change log; a rehearsal has none.

Not here: what all imports have in common (`db.importing`). Caller: ``moorage placement import``.
"""
