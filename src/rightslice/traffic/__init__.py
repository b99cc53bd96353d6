"""Demand as arrays: token lengths, arrival processes, sessions, offline work and recorded traces."""
