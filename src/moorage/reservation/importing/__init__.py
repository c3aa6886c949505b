"""Takes over an existing Blazar database in one transaction, or nothing of it.

    blazar_db (SELECTs on Blazar's tables) -> rules (what becomes of each row, pure) -> importer (writes, counts)

The command ``moorage reservation import`` calls `importer`. Nova, Placement and Neutron are not asked here:
reservations of an older system are examined when their events run.
"""
