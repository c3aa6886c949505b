"""Values that jobs and drivers share: job payloads, the files of a config drive, power states. Pure.

Not here: writing the payloads (`moorage.compute`), and building a drive from the files (`agent.virt`).
"""
