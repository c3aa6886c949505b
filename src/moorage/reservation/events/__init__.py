"""Runs the events of leases: create, start, before_end, end, update and delete.

    event_runner    a background task: reads due events, orders them by `model.event_order`, and puts new starts and
      |             before_end events into batches; every other event is a batch of one
      v
    event_executor  claim (epoch + 1) -> journal -> step, step, ... -> finish: events, leases, reservations
                    any process, any number of events; `steps.plan_builder` plans the journal, `event_run` holds
                    the progress, and writes what the end of an event changes in its lease
                                            |
                                            |-> a step waits or fails: its event is released, and retried later, up to
                                            |   a deadline; the others of the batch go on
                                            |-> the process dies: another one frees the claims within 5 s (`jobs`), and
                                            |   continues at the first step that is not done
                                            |-> a claim was lost: no write changes the event, and this worker leaves it

The start of a lease is decided in `event_order.schedule_events`; `EventExecutor` commits it with its first transaction.
Steps may run twice, so each is idempotent (see `steps`). `parallel_requests` sends the requests of a batch side by
side. `lease_service` and `healing` run the events that they create at once (`EventExecutor.run_claimed`).
"""
