"""The client of compute that other services, host agents, the command line and the dashboard use.

    compute_client   `ComputeClient`: the public Compute API (a real Nova works too), and the agents' routes;
                     `ExplainClient`: Moorage's own explanations of scheduling
    values           what `ComputeClient` returns

Not here: the client of the jobs API, `moorage.jobs.job_api.HostJobsClient`, on which `ComputeClient` is based.
"""
