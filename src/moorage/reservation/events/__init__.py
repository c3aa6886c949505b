"""Runs the events of leases: create, start, before_end, end, update and delete.

    event_runner (a background task: reads due events, orders them by `model.event_order`)
      |-> batch_executor   starts, and before_end events without actions: up to 100 in shared transactions
      |-> event_executor   every other event, one at a time:

          claim (epoch + 1) -> journal of steps -> step, step, ... -> finish: lease, reservations, event
          any process          (plan_builder)      (step_registry)    in one transaction
                                    |
                                    |-> a step waits or fails: release the claim, retry later, up to a deadline
                                    |-> the process dies: the claim expires after 60 s, and the next process
                                        continues at the first step that is not done
                                    |-> the claim was lost: every write raises `Fenced`, and this worker stops

The start of a lease is decided in `event_order.schedule_events`. `BatchExecutor.start_leases` commits it with its first
transaction; a start that runs alone is committed by `EventExecutor.claim`. Steps may run twice, so each is idempotent
(see `steps`). `lease_service` and `healing` run the events that they create at once.
"""
