"""What an event does in Placement, compute, Neutron and elsewhere: one repeatable effect per step."""
