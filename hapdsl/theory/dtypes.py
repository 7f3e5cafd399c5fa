"""The dtypes of tensors, and kinds of them."""

from __future__ import annotations

from collections.abc import Mapping

FLOATS = ("f64", "f32", "bf16", "f16")
INTS = ("i64", "i32", "i8")
DTYPE_BYTES = {"f64": 8, "f32": 4, "bf16": 2, "f16": 2, "i64": 8, "i32": 4, "i8": 1, "bool": 1}
# What an operator's `dtype` statement may say of an operand or an output besides a dtype.
KINDS: Mapping[str, tuple[str, ...]] = {
    "float": FLOATS,
    "int": INTS,
    "number": (*FLOATS, *INTS),
    "any": tuple(DTYPE_BYTES),
}
