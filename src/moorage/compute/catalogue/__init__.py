"""Flavors, key pairs and images, which users name when they create servers.

    flavor_service      flavors, their extra specs and access lists
    keypair_service     key pairs of users, and the generation of their keys
    image_proxy         images, for clients that ask compute for them
    baremetal_flavors   background task: migrates bare-metal servers to flavors with a custom resource class

Called by the API. Not here: how a flavor becomes a request (`moorage.scheduler.flavor_resources`).
"""
