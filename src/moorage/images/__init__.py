"""Images and bitstreams: where they come from, a cache by digest, and the part of the Image API v2 we serve.

Here: the `ImageSource` seam (Glance, our own service, a directory), the host's `DigestCache`, the service.
Not here: what a bitstream means (`moorage.accelerator.model.bitstream`).
"""
