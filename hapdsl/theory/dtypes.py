"""The dtypes of tensors."""

from __future__ import annotations

FLOATS = ("f64", "f32", "bf16", "f16")
DTYPE_BYTES = {"f64": 8, "f32": 4, "bf16": 2, "f16": 2, "i64": 8, "i32": 4, "i8": 1, "bool": 1}
