"""A plan as text for terminals and as one self-contained HTML page."""
