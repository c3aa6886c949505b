"""SQL of the network service: its tables, and the functions that read and write them."""
