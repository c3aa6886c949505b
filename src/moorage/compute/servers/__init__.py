"""Use cases of servers that change no host: create, delete, operate, tag, explain."""
