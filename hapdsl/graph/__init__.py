"""A model as a training graph: forward, backward and updates over tensors; programs over its tensors."""
