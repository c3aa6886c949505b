"""Networks of servers: the part of the Networking API v2.0 (Neutron) that flat networks need, and its clients.

::

    routes -> handlers -> service       the API; `schemas` has the bodies, `resource_views` the answers,
                                        `operation_docs` the texts of the OpenAPI document
              network_service           networks and subnets, of operators and of the configuration file (`entries`)
              port_service              ports, of projects and of servers
              store                     SQL
              model, addressing         values; the choice of free addresses
    client.neutron_client               of a Neutron, for reservations of floating IPs
    client.moorage_ports                of our own service, for the compute service
    client.neutron_ports                of a Neutron, for the compute service

An operator names a bridge, VLAN or network of libvirt that the hosts have; nothing here sets one up. Not here: routers,
floating IPs, security groups; and the attachment of guests, which the agent's drivers do.
"""
