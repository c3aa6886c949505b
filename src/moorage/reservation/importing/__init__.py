"""Imports an existing Blazar database in one transaction: all of it or nothing.

    blazar_db (SELECTs on Blazar's tables) -> rules (converts each row, pure) -> importer (writes, counts)

The import does not call Nova, Placement or Neutron: the resources of an imported reservation are examined when its
events run.

Not here: what all imports have in common (`db.importing`). Caller: ``moorage reservation import``.
"""
