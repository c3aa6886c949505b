"""Each service as a WSGI application for other WSGI servers: ``gunicorn moorage.wsgi.placement:application``.

The environment variable ``MOORAGE_CONFIG`` names the configuration. Each module serves its own service, with identity
in the same process if users are built in, and reaches other services through [endpoints]; the dashboard reaches
identity through [endpoints], too. The background tasks of a service run in one process per state directory; when that
process ends, another one takes over. `moorage up` does not use this package.

`entry` builds the application, and rebuilds it in a forked process. The other modules only name a service.
"""
