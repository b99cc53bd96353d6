"""A plan -> the Kubernetes tree that runs it, and the page that says how to put it in place."""
