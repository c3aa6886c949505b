"""SQL of the network service: its tables (`tables`), and the functions that read and write them (`network_store`).

All functions run in the caller's transaction. A port's address is taken by inserting its row, so that two processes
cannot give the same one.
Not here: which address is free (`network.addressing`) and which request is allowed (the use cases); so there is no
pipeline. Callers: `network_service` and `port_service`.
"""
