"""Use cases that create, change or delete servers on their hosts, and explanations of scheduling.

    create_service    rows of the new servers, and the job that selects hosts (`scheduling`)
    operate_service   power, rebuild, rescue, images, shelve: checked here, carried out by the host's agent
    console_service   a serial console of a server: its token, and whether it may go on
    interface_service attach an interface to a server, or detach one
    delete_service    deletion, soft deletion, deletion without a host; the task that reclaims
    explain_service   why a server finds a host or not, without a claim

Each decides, commits and then wakes the worker. Not here: moves (`moves`), use cases without a host
(`requests.server_service`), and the host's report (`agents.agent_service`).
"""
