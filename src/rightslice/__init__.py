"""Plan, verify in simulation, and deploy GPU inference on Kubernetes from one workload file."""
