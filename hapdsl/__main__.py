"""`python -m hapdsl`, and the command `hapdsl`: the command line.

Ctrl-C while Python still imports would print where it was; until `cli.main` watches, the process ends without a word, as others do.
"""

import signal
import sys


def main() -> int:
    """Run the command line and return its exit status."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from hapdsl.cli import main as command_line

    signal.signal(signal.SIGINT, before)
    return command_line()


if __name__ == "__main__":
    sys.exit(main())
