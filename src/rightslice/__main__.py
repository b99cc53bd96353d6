"""`rightslice` and `python -m rightslice`: the command line."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the program; an interrupt ends it quietly, also while it is still being loaded."""
    try:
        from rightslice.ui.cli.main import main as run  # noqa: PLC0415 - inside the try

        return run()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
