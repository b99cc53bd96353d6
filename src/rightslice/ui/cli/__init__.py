"""The command line. Loading it loads nothing heavy: every command imports its use case when it runs."""
