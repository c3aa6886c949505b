"""The clients of network services.

    neutron_client   of a Neutron (Networking API v2.0): networks, subnets, ports and floating IPs; for reservations of
                     floating IPs
    server_ports     of our own network service: the ports of servers; for the compute service

Each is a client of its own service, so nothing is passed between them. Not here: the choice of the networks of a server
(`moorage.compute.requests.network_choice`). `moorage.wiring` makes both.
"""
