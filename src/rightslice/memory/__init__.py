"""Bytes of a model on a device: weights, KV cache, activations, overhead; what fits and how an engine starts."""
