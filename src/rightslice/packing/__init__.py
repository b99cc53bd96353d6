"""Which replicas share which GPUs and nodes at the lowest price: the layout model, its solver, and the placement."""
