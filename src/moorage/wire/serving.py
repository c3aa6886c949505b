"""What a process must do before granian serves an application in it."""

from collections.abc import MutableMapping

#: What WSGI calls a header, or a user whom the server has identified.
_LIKE_REQUESTS = ("HTTP_", "CONTENT_", "REMOTE_")


def forget_variables_like_headers(environment: MutableMapping[str, str]) -> None:
    """Remove what would look like a part of each request; call it with ``os.environ`` while loading the application.

    Granian 2.8 lays each request over a copy of the environment of its process: ``HTTP_X_AUTH_TOKEN`` there would be
    everybody's token, and ``HTTP_PROXY`` a header (measured; the copy is made after the application is loaded).
    """
    for name in [name for name in environment if name.startswith(_LIKE_REQUESTS)]:
        del environment[name]
