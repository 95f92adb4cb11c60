"""``streamkernel`` and ``python -m streamkernel``: the command line, or what to install for it."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    try:
        from streamkernel import cli
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "streamkernel":
            raise
        sys.exit(f"streamkernel: the command line needs {error.name}; pip install 'streamkernel[engine]'")
    cli.main()


if __name__ == "__main__":
    main()
