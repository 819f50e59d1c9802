"""What benchmarks start as processes of their own, beside the service and the machine agent."""
