"""Where each service is served below the plane's address: what the catalogue and the banner say."""

#: Service -> path of its endpoint; the first segment is its mount prefix.
PATHS = {
    "identity": "/identity/v3",
    "placement": "/placement",
    "compute": "/compute/v2.1",
    "accelerator": "/accelerator/v2",
    "reservation": "/reservation/v1",
    "image": "/image",
}
