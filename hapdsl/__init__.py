"""hapdsl: plan, prove and run one model on devices that differ."""

__version__ = "0.1.0"
