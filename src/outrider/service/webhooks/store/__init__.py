"""The statements on webhooks and on deliveries, whose table is the queue."""
