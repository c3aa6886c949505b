"""Values that jobs and drivers share: the files of a config drive, power states. Pure.

Not here: job payloads (`moorage.jobs.contract`), and building a drive from the files (`agent.virt`).
"""
