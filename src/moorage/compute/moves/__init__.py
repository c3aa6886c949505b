"""Moves of servers between hosts: resize, migrate, live-migrate, evacuate, unshelve.

    move_service (API)  -> MigrationEngine.begin_step(PREP)
                               |
    migration_worker       steps of the compute service: select and claim a destination, swap and release allocations
    host agents            steps of hosts: jobs, reported to `agents.agent_service`
                               |
    migration_engine       after each step: the next one (`model.migration_workflow`), in the transaction of its report

`servers`, `agents` and `catalogue` use the engine too: a deletion, a failed build or a dead host may have to record or
clean up leftovers. Not here: which steps there are (`model.migration_workflow`), and how a host is found
(`scheduling`).
"""
