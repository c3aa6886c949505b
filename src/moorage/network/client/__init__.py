"""The clients of network services.

    neutron_client   of a Neutron (Networking API v2.0): networks, subnets, ports and floating IPs; for reservations of
                     floating IPs
    server_ports     what the compute service needs of the ports of servers
    moorage_ports    ... from our own network service
    neutron_ports    ... from a Neutron

Each is a client of its own service, so nothing is passed between them. Not here: the choice of the networks of a server
(`moorage.compute.requests.network_choice`). `moorage.wiring` makes all.
"""
