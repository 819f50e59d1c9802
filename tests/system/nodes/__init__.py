"""Many nodes: what holds on one node holds on several."""
