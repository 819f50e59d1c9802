"""Webhooks: subscriptions, and at-least-once delivery of events to them.

    event_intake      stores an event with its deliveries in one transaction
    delivery_queue    claims due deliveries and attempts them; slow receivers delay no others
    outcomes          stores the outcomes of attempts, with their effect on the webhooks
    sender            makes one attempt: a signed POST
    http_client       posts a request, bounded in response size; imports aiohttp
    resolver          enforces the policy of `addresses` on every connection
    retry_policy      decides what follows an attempt: succeeded, failed, or due again (pure)
    subscriptions     the webhooks of each account, cached for a second
    retention         deletes old deliveries, and old events of the event log

Data flows from event_intake to the deliveries table, which is also the queue, and from there
through delivery_queue to the receiver. The SQL is in `store.deliveries` and `store.webhooks`.
"""
