"""From an nn.Module to a model's text, and from its weights to a program's tensors.

`trace` exports the module (torch.export, on meta or fake tensors), `clean` takes away what computes nothing and recognises
composite operators, `handlers` map what is left to operators of the theory over values whose dims are known by their factors
(`atoms`, `build`), `names` finds symbols for these, `text` rolls equal layers up and prints, `weights` carries the module's own
tensors into a graph and back.

Importing `PACKAGE.MODULE:FACTORY` runs that module, by the user's wish; nothing else is run.
"""
