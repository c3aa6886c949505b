"""Jobs: work that a service has for a host or a worker; and background tasks, which do the work of a process.

::

    enqueue (service) -> claim, with an epoch -> extend ... -> finish | release      `store`, in the service's database
    kinds, payloads and results of hosts' jobs                                       `contract`
    a service's jobs for its hosts; agents do the same over HTTP                     `host_jobs`, `job_api`
    hints between processes shorten the wait; the table is polled anyway             `wakeups`
    workers that died are found, and their claims are free at once                   `worker_watch`

    Task.run_once() -> when to call it again   run by `TaskThreads`, `TaskPool` or `TasksInVirtualTime`

Each service that has jobs puts the table (`tables`, first migration `initial_table`) into its own database. Called by
the services, the agents and `moorage.wiring`. Not here: the work itself.
"""
