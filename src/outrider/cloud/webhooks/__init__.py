"""Webhooks: who is told of which event, and that the telling succeeds.

An event is stored with its deliveries in one transaction (`intake`); the deliveries table is
the queue (`queue`), from which each delivery is tried (`sender`) until it succeeds or its
retries are spent. `subscriptions` knows the webhooks, `guard` where they may point.
"""
