"""Load tests of real endpoints: when requests are sent, what their answers mean, and what a run has shown."""
