"""Handlers of the Compute API: decode, call the service, encode. `views` and `server_view` hold the shapes."""
