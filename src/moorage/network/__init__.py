"""The network service of the cloud, a Neutron: there is none of ours, only the client."""
