"""Kubernetes objects as plain data: names that the API server accepts, builders, and the one YAML serialiser."""
