"""Images and bitstreams: sources, a cache on hosts, and the part of the Image API v2 (Glance) that we serve.

::

    ImageSource (base)         GlanceImages (glance)         over HTTP, with a service's credentials
                               ImageDirectory (directory)    our own image service, on disk
                               HostImageSource (for_hosts)   on hosts: through compute or the accelerator service
    DigestCache (cache)        image data on a host, by sha512

* `views`       whose view of the images a call has; each read and each write names one
* `client`      what compute and reservations ask of an image service
* `routes`, `handlers`, `schemas`, `service`, `query`, `document`, `model`, `quota`   our own image service

Not here: what the properties of a bitstream mean (`moorage.accelerator.model.bitstream`).
"""
