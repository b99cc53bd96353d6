"""What people write: workload and layout documents, their diagnostics and JSON Schema."""
