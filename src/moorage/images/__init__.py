"""Images and bitstreams: sources, a cache on hosts, and the part of the Image API v2 (Glance) that we serve.

::

    ImageSource (base)         GlanceImages (glance)         over HTTP, with a service's credentials
                               ImageDirectory (directory)    our own image service, on disk
                               HostImageSource (for_hosts)   on hosts: through compute or the accelerator service
    DigestCache (cache)        a cache of image data on a host, by sha512

* `base`        also the views: which images a call may read or write; each call names a view
* `client`      the calls of compute and reservations to an image service
* `attributes`  which attributes of images are no properties
* `private_directories`  directories that only one user can open
* `routes`, `handlers`, `schemas`, `service`, `query`, `document`, `model`, `quota`   our own image service

Not here: the meaning of a bitstream's properties (`moorage.accelerator.model.bitstream`).
"""
