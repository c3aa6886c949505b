"""Steps that several use cases of compute share: parse a request, check limits, and send a command to a host.

    server_request   a create request and its references: image, flavor, device profile, zone, host
    server_service   find, update, lock and tag servers; `visible` checks that the caller may see it
    group_service    server groups, and the check of a group at the moment a server gets its host
    quota_service    limits, usage, and the admission of requests
    network_choice   the networks and ports of new servers and interfaces, with the caller's rights
    host_commands    record an action and enqueue the job for the server's host

Called by servers, moves, catalogue, agents and scheduling. Not here: the use cases that make or change servers.
"""
