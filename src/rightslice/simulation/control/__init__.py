"""What decides at the ticks of a cluster simulation: autoscalers, nodes, cold starts, faults, and bounds.

Plain data and pure functions without an event loop. Times are seconds of simulated time.
"""
