"""Each service as a WSGI application, for whoever runs such servers anyway: ``gunicorn moorage.wsgi.placement:application``.

The configuration is that of ``MOORAGE_CONFIG``; of [plane] services each module serves its own, with identity beside it
where users are ours, and reaches the others by [endpoints]; the dashboard reaches identity so, too. The background tasks of a service run in one process of a state
directory at a time, whichever comes first; the next one takes over when that ends. `moorage up` needs none of this.

`entry`: how an application is made, and made again in a process that was forked.
"""
