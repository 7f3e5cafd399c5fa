"""Operators in index notation, and what follows from it: shapes, rules, flops, gradients."""
