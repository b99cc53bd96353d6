"""Reads model configurations: from keys to layers, from layers to weights, from weights to an `Architecture`."""
