"""Finds a host for each waiting server and claims it in Placement.

    BuildTask (build_worker)              claims up to 64 jobs; retries, leases, publishing jobs
        |
    BuildScheduler (build_job)            all servers of a job get hosts, or none does
        |
    HostSelector (pipeline)               the pipeline: request -> pool -> target -> claim, for one server or many
        |-- build_request (placement_request)   flavor, image, hints, zone -> query and requirements
        |-- CandidatePool (candidate_pool)      one Placement answer, with our own claims subtracted
        v
    Selection or NoHost (selection)
        |
    SelectionCommitter (commit_selection) one transaction: hosts, and a build job for each host

`job_worker` claims and postpones jobs, `build_retries` sends a failed build to another host, and `interfaces` binds the
servers' ports. Moves use `HostSelector` and `JobWorker` too. Not here: weighers, filters and prefilters
(`moorage.scheduler`), and the build itself, which the host's agent does.
"""
