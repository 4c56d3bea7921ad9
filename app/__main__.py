"""Starts the command `acceptor`, even if the application's packages are missing."""

import signal
import sys


def main() -> None:
    """Run the command line, or say how to install what it needs."""
    try:
        from .cli import main as run  # noqa: PLC0415, imports the application's packages
    except ModuleNotFoundError as error:
        sys.exit(f"acceptor: needs {error.name}; install with: pip install 'acceptor[app]'")
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    run()


if __name__ == "__main__":
    main()
