"""The steps of events: one idempotent effect each, in Placement, Nova, Neutron, mail or a webhook.

    plan_builder (database -> list of steps, in the order of capacity.step_plans)
    *_steps modules, one per service or resource type: {class of steps: the method that runs one}

A step returns None when it is done, `Waiting` when it needs time, `Further` when it found more steps, and raises a
`MoorageError` when it failed and may be retried. A step may run twice, so it first looks for existing objects.
`events` decides when to run, retry or give up.
"""
