"""Judges anybody's manifests: documents with their lines, what they describe together, and one small rule per fault."""
