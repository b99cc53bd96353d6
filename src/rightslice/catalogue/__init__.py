"""Facts with unit, source and date: accelerators, MIG geometry, machines and prices, platforms, engines, architectures.

No network. Everything is loaded from data files of the package, lazily and once.
"""
