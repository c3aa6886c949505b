"""SQL of the compute service. Every function runs in the caller's transaction and knows no rules beyond its table.

    tables             the tables; changes need a migration in `compute.migrations`
    server_store       servers, consoles, and the job queues
    action_store       actions and events            flavor_store, keypair_store   the catalogue
    host_store         hosts and aggregates          group_store                   server groups
    move_store         moves, and their listing      quota_store                   limits and recorded usage
    scheduling_store   what the scheduler reads      meters                        Prometheus metrics

A change of a server: `lock_server`, decide, `update_server`. Not here: any decision (`model`, the services).
"""
