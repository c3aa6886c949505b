"""Keeps the forest of this process equal to the database, and commits every write.

    read:   service -> snapshot.current(): asks for the last change number (or knows it by the writer lease),
                       reads the changes of other processes, returns the forest
    write:  service -> committer.submit(): group_commit collects concurrent writes
                       -> takes the next change number -> decides (`rules`) -> writes and commits -> updates the snapshot

* `allocation_cache` answers reads of allocations as long as no provider in the answer has changed.
* `stale_reads` lets reads continue for a while when the database does not answer; writes never do.
* `writer_lease_task` renews the lease that saves a lone process the question for the last number.

Not here: SQL (`store`) and the checks of a write (`rules`).
"""
