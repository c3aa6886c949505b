"""Why a request has no candidate, which hosts come closest, and which change would help. Pure."""
