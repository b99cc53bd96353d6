"""Use cases: what each command does, and the loop between proposing, verifying and tightening."""
