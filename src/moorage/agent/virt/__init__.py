"""What runs servers on a host: the driver's interface and the hypervisors behind it."""
