"""The bottom layer: quantities, errors, seeded randomness and the value types that every other package shares.

Standard library and numpy only.
"""
