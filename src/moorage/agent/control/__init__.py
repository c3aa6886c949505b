"""Control of a running agent: the HTTP API on a Unix socket, and the reload of the provider configuration.

::

    changed file | SIGHUP | `moorage provider-config apply` | job from compute
        -> ProviderConfigReloader: read and check -> merge and publish (`agent.tracker`) -> store, with the previous set

A refused configuration changes nothing: the last accepted one stays in force. Jobs of the compute service have the same
effect as commands on the machine. Not here: the rules of the files (`agent.provider_config`).
"""
