"""`python -m hapdsl.demo`: the demo, where what it needs is installed."""

from __future__ import annotations

import sys
from importlib.util import find_spec

NEEDED = {"torch": "torch", "sklearn": "scikit-learn"}

if __name__ == "__main__":
    missing = " and ".join(package for module, package in NEEDED.items() if find_spec(module) is None)
    if missing:
        sys.exit(f"the demo needs {missing}, not installed here: pip install {missing.replace(' and', '')}")
    from hapdsl.demo.digits import main

    sys.exit(main())
