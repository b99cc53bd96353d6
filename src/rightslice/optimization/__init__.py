"""From needs to a plan: candidates with their reasons, the packing problem, and the plan document."""
