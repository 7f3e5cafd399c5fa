"""`python -m hapdsl`: the command line."""

import sys

from hapdsl.cli import main

sys.exit(main())
