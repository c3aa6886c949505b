"""Takes over an existing OpenStack Placement database (tables of 16.0.0) in one transaction, or rehearses it.

    placement_db (SELECT only) -> importer -> rules: keep, mend or leave out each row, with a finding -> target

* `rules` is pure. `target` writes our tables and the change log; `Rehearsal` in it writes nothing.

Not here: reading a foreign database safely (`db.importing`, shared with reservations). Caller: ``moorage import``.
"""
