"""What people touch: parse, call a use case, show the answer; no arithmetic."""
