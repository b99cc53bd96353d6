"""Everything that talks to the outside: the only package, beside the user interface, with network access."""
