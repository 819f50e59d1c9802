"""What a service of several nodes does when something breaks, shown on real processes."""
