"""Imports an existing OpenStack Placement database (tables of 16.0.0) in one transaction, or rehearses the import.

    placement_db (SELECT only) -> importer -> rules: keep, repair or leave out each row, with a finding -> target

* `rules` is pure. `target` writes Moorage's tables and the change log; its `Rehearsal` writes nothing.

Not here: reading a foreign database safely (`db.importing`, shared with reservations). Caller: ``moorage placement
import``.
"""
