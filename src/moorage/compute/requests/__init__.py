"""What several use cases of compute share: parsing a request, checking limits, and sending a command to a host.

    server_request   a create request and its references: image, flavor, device profile, zone, host
    server_service   find, describe, lock and tag servers; `visible`, the check of who may see a server
    group_service    server groups, and the check of a group at the moment a server gets its host
    quota_service    limits, usage, and the admission of requests
    host_commands    record an action and enqueue the job for the server's host

Called by servers, moves, catalogue, agents and scheduling. Not here: the use cases that make or change servers.
"""
