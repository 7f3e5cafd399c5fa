"""Kinds of options that several verbs take."""

from __future__ import annotations

import math
from typing import Any

import click


class Real(click.FloatRange):
    """A number in a range. NaN compares with nothing, so click's own range lets it through."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if number is not None and math.isnan(number):
            self.fail(f"{value} is no number.", param, ctx)
        return number
