"""`moorage agent join`: makes this machine a host of a plane with one command, which can be repeated at any time.

    command (order of the steps, output) -> plan (which files this machine gets), trust (the server's certificate),
                                            unit (systemd)

Not here: the checks, which `moorage doctor` shares; the exchange of the token (`moorage.identity.host_credential`); the
agent itself (`moorage.agent`).
"""
