"""The compute service: the Compute API v2.1 (as Nova's), and the scheduling, building and moving of servers.

    api            routes, schemas, handlers, views
    console_proxy  websockets between people and the serial consoles of servers
    service        `ComputeService`: the use cases, constructed and connected
    servers        create, delete, operate on and explain servers
    agents         the host agents' side: heartbeats, jobs, reports, domains; and hosts that die
    catalogue      flavors, key pairs, and the migration of bare-metal flavors
    moves          resize, migrate, live-migrate, evacuate, unshelve
    scheduling     find a host for servers and claim it
    hosts          services, aggregates, and what Placement is told about them
    requests       what several use cases share: request parsing, quotas, groups, commands to hosts
    deps           what the use cases share: database, clock, ids, clients of other services, settings
    store          SQL, one module per table family
    model          pure values and decisions: states, operations, steps of moves, quotas
    client         the client that other services and host agents use

Each package may import the ones below it. Not here: what happens on a host (`moorage.agent`), and which host is best
(`moorage.scheduler`).
"""
