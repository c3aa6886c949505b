"""Use cases of leases: create, update, delete, list, calendar, availability, maintenance."""
