"""The clients of the network service: of a Neutron (`neutron_client`), for reservations of floating IPs; and of our own
(`server_ports`), for the compute service.
"""
