"""The explanations of all diagnostic codes, one module per hundred (`hapdsl.lang.codes` joins them)."""
