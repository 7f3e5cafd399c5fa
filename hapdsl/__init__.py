"""hapdsl: plan, prove and run one model on devices that differ.

plan = hapdsl.plan(module, example, "cluster.hap")
step = plan.compile(module)
loss = step(batch)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Planned", "Step", "__version__", "load", "plan"]

if TYPE_CHECKING:
    from hapdsl.api import Planned, Step, load, plan


def __getattr__(name: str) -> Any:
    """What works on modules needs torch, which takes seconds to import: only when it is asked for. Raises ImportError without torch."""
    if name in __all__:
        import importlib

        try:
            return getattr(importlib.import_module("hapdsl.api"), name)
        except ModuleNotFoundError as missing:
            if missing.name != "torch":
                raise
            raise ImportError(f"hapdsl.{name} works on modules and needs torch: pip install torch") from None
    raise AttributeError(f"module 'hapdsl' has no attribute '{name}'")
