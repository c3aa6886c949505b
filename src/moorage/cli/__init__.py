"""The `moorage` command: operation of a plane, and everything that the `openstack` clients cannot do.

    main (command tree) -> commands, agent, doctor, backup -> services (clients) or the databases of one configuration

`commands` has a module per command or small group; `agent` (join), `doctor` and `backup` are packages of their own.
They share `state` (configuration file and state directory), `services` (clients of the APIs), `output` (tables,
progress), `importing` (the `import` commands), `status_reading` and `exit_codes`. `serve` is the worker process that
`moorage up` supervises.

Not here: decisions. A command calls the APIs, or reads the databases that its configuration names.
"""
