"""Keeps the forest of this process equal to the database, and commits every write.

    read:   service -> snapshot.current(): queries the last change number, reads the changes of other
                        processes, returns the forest
    write:  service -> committer.submit(): `GroupedWrites` of `db.session` collects concurrent writes
                       -> takes the next change number -> decides (`rules`) -> commits -> updates the snapshot

* `snapshot.StaleRead` lets reads continue for a while when the database does not answer; writes fail then.

* `meters` counts searches, claims and commits, and shows how current the forest is.

Not here: SQL (`store`) and the checks of a write (`rules`).
"""
