"""The jobs that compute and the accelerator service have for this host.

::

    JobsTask: claim -> JobRunner.run_job -> report        while it runs: a keep-alive per period (`keep_alive`)
                       |- ServerBuilder  build, rebuild, attach, detach, destroy
                       |- MoveJobs       the host's part of resize, migration, shelve
                       |- Snapshots      a disk into the image service

Jobs are delivered at least once, so every job may be run again after a crash at any line. `job_runner` maps a job's
kind to its method. Not here: the queue itself (`moorage.jobs`), and which jobs a server's operation needs
(`moorage.compute`).
"""
