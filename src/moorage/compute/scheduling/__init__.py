"""Finds a host for each waiting server and claims it in Placement.

    BuildTask (build_worker)              claims up to 64 jobs; retries, leases, publishing jobs
        |
    BuildScheduler (build_job)            all servers of a job get hosts, or none does
        |
    HostSelector (host_selection)         select and claim; several servers share one claim
        |-- PlacementRequestBuilder (placement_request)   flavor, image, hints, zone -> query and requirements
        |-- CandidateSearcher (candidate_search)          query -> candidates -> ranked, filtered claim targets
        |       `-- CandidatePool (candidate_pool)        one Placement answer, with our own claims subtracted
        |-- PlacementClient.claim
        v
    Selection or NoHost (selection)
        |
    SelectionCommitter (commit_selection) one transaction: hosts, and a build job for each host

Moves use `HostSelector` and `JobWorker` too. Not here: weighers, filters and prefilters (`moorage.scheduler`), and the
build itself, which the host's agent does.
"""
