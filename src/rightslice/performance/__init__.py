"""Time of one engine step on one device, its error band, measured stages, and the optimistic rate of one replica.

`operators` holds the law of each operator, `coefficients` their numbers (data/coefficients.yaml), `laws` adds them up
into `costs.StepCosts`, `accuracy` says how far to trust the sum, `stages` reads measured curves and `ceiling` bounds
the rate of one replica.
"""
