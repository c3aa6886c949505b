"""Values that jobs and drivers share: job payloads, the files of a config drive, power states. Pure.

Not here: who writes the payloads (`moorage.compute`), and who makes a drive of the files (`agent.virt`).
"""
