"""HAP7xx: running. In the order of their numbers."""

from __future__ import annotations

from hapdsl.lang.explained.explanation import Explanation

RUNNING: dict[str, Explanation] = {
    "HAP700": Explanation(
        "no kernel",
        '`torch "…"` of an operator names what computes it: a function on tensors in torch, torch.nn.functional, torch.special, '
        "torch.linalg or torch.fft that changes nothing in place, a kernel of hapdsl's own (`hapdsl.softmax`), or a function of "
        "a module of yours. Text alone never runs foreign code: such a module must be named on the command line.",
        'torch "mykernels.scan"',
        "hapdsl run program.hap --allow mykernels",
    ),
    "HAP701": Explanation(
        "a module can't be imported",
        "The module of an operator's kernel was allowed on the command line, but importing it failed.",
    ),
    "HAP702": Explanation(
        "a label that is no class",
        "The last dim of the logits says how many classes there are; labels run from 0 to one less. -100 marks a row as ignored.",
    ),
    "HAP703": Explanation(
        "an ignored label in a mean over all rows",
        "Without a count, cross_entropy divides by the global number of rows, so that shares of any size add up. Where labels "
        "are ignored, the rows that count must be counted, over all devices.",
        "loss = cross_entropy(z, label)",
        "loss = cross_entropy(z, label, count_labels(label))",
    ),
    "HAP704": Explanation(
        "an index outside its table", "embedding looks up rows by number, from 0 to the number of rows less one."
    ),
    "HAP705": Explanation(
        "a kernel failed, or returned something else",
        "A kernel must return one tensor per output of its operator, of the shape and dtype that the declaration gives it for "
        "this device's share.",
    ),
    "HAP706": Explanation(
        "a tensor is missing or misshapen",
        "A step needs a value for each input, parameter, buffer and piece of state that the program loads, of the model's shape.",
    ),
    "HAP707": Explanation(
        "pieces that don't fit together",
        "The devices' pieces of a tensor, before a collective, don't make up what is to be held after it. On a mesh of two axes "
        "a dim that both axes cut must be gathered on the inner axis first.",
    ),
    "HAP708": Explanation(
        "replicas that differ",
        "Devices that should hold the same tensor hold different ones. Either a kernel isn't a function of its operands alone, or "
        "the devices' arithmetic differs: `--check-replicas N` brings them together every N steps.",
    ),
    "HAP709": Explanation(
        "no new value in the placement that is held",
        "A parameter or a piece of state must be updated in the placement it was loaded in, for the next step starts from there.",
    ),
    "HAP710": Explanation(
        "data that can't be read",
        "`--data` takes `random`, `digits` (needs scikit-learn), a file written with numpy.savez (no pickled objects), a file of safetensors, or "
        "MODULE:FACTORY, a function without parameters that returns an iterator of mappings from input to tensor.",
    ),
    "HAP711": Explanation(
        "data that doesn't fit the model's inputs",
        "Arrays of a file are named like the inputs; their first dim counts samples, the others and the kind of number are the "
        "input's. All inputs share their first dim, the batch. A factory gives whole batches.",
    ),
    "HAP715": Explanation(
        "an instruction that can't be run",
        "The program isn't complete, or something is read that nothing made. Let `check` prove it first.",
    ),
    "HAP716": Explanation(
        "a message of another size than its receivers expect",
        "The sizes of all messages follow from the program and its shares, and are verified before one is sent: gloo may return "
        "wrong data in silence otherwise.",
    ),
    "HAP717": Explanation(
        "ranks with different programs",
        "All processes of a run must have read the same program, model and shares, in the same version of hapdsl. On several machines, copy the file again, and install the same version.",
    ),
    "HAP718": Explanation(
        "not as many processes as devices",
        "A program with its shares is for a certain number of devices, each a process of its own.",
    ),
    "HAP719": Explanation("no steps to run", "A run takes at least one step: `--steps 20`."),
    "HAP720": Explanation(
        "a process failed",
        "One of the processes ended before the run was over; the message says which, and what is known of the cause. The others were "
        "ended. SIGKILL without another message often means that the machine ran out of memory.",
    ),
    "HAP721": Explanation(
        "no such device or backend here",
        "`--device` is cpu or cuda, `--backend` gloo (on cpu) or nccl (on cuda). With cuda each rank takes the GPU of its LOCAL_RANK, so a machine needs as many "
        "as it has ranks. nccl has never been tried with this version: compare a few steps with gloo first.",
        "hapdsl run plan.hap --backend nccl --device cpu",
        "hapdsl run plan.hap --device cuda",
    ),
    "HAP722": Explanation(
        "a dtype that the device lacks",
        "A tensor of the program is of a dtype that this device doesn't compute in, or that the backend doesn't carry: bf16 needs a GPU of compute capability "
        "8.0 or newer. `--dtype` runs all floating tensors as another one.",
    ),
    "HAP723": Explanation(
        "nothing to compile with",
        "`--compile` has torch.compile make one function of the calls between two collectives; on a CPU it needs a C++ compiler. The first steps take "
        "much longer then. Without it programs run eagerly.",
    ),
    "HAP730": Explanation(
        "a rule that isn't true",
        "The rules of an operator follow from its declaration. Run in float64 on random uneven shares, one of them empty, this rule "
        "gives something else than one device does.",
        'op root(x[*i]) -> y[*i] { linear x; torch "torch.sqrt" }',
        'op root(x[*i]) -> y[*i] { torch "torch.sqrt" }',
    ),
    "HAP731": Explanation(
        "an operator that can't be tried",
        "A warning: no call of the operator could be made up, because an attribute has no default or the index notation stands in "
        "an attribute. Its rules are taken as declared.",
    ),
    "HAP732": Explanation(
        "a gradient that isn't true",
        "The declared gradient differs from what torch's autograd computes through the operator's kernel.",
        'op square(x[*i]) -> y[*i] { grad x = mul(y.grad, x); torch "torch.square" }',
        'op square(x[*i]) -> y[*i] { grad x = scale(mul(y.grad, x), by = 2); torch "torch.square" }',
    ),
    "HAP740": Explanation(
        "a program that differs from one device",
        "`check --numeric` ran the program at a reduced size in float64 beside its model on one device, and they differ. "
        "The program is proven from the rules of its operators, so an operator's declaration says something that its kernel doesn't do.",
    ),
    "HAP741": Explanation(
        "too large to try in numbers", "A warning: even shrunk, the program's tensors are too large for this machine."
    ),
    "HAP745": Explanation(
        "no cluster to correct",
        "`hapdsl run --calibrate` corrects the cluster that the program names, so its header must name one.",
        "program mine for mlp { … }",
        "program mine for mlp on lab { … }",
    ),
    "HAP750": Explanation(
        "no checkpoint there",
        "`--resume` and `hapdsl checkpoint` take a folder that a run wrote checkpoints to, or one of the `step-…` folders in it. A run that "
        "ended before its first checkpoint has left none.",
        "hapdsl run plan.hap --resume chekpoints",
        "hapdsl run plan.hap --resume checkpoints",
    ),
    "HAP751": Explanation(
        "a checkpoint that is damaged",
        "Each file's size and SHA-256 stand in the manifest, and the manifest has a checksum of its own. One of them differs from what is on "
        "the disk, or a file is missing. Nothing of such a checkpoint is used; the one before it is whole.",
    ),
    "HAP752": Explanation(
        "not a checkpoint that this hapdsl reads",
        "The folder's manifest.json is something else's, or a later version of hapdsl wrote it.",
    ),
    "HAP753": Explanation(
        "a checkpoint of another model",
        "A run can go on under another program, with other shares or on another number of devices, but the parameters, buffers and optimizer "
        "state must be those of its model, in their shapes.",
    ),
    "HAP754": Explanation(
        "a checkpoint can't be written",
        "The disk is full, the folder isn't one that may be written to, or (on several machines) not all of them see it. The run ends; the "
        "checkpoints before are whole.",
    ),
    "HAP755": Explanation(
        "another run writes to this folder",
        "A run holds the folder of its checkpoints as long as one of its processes lives.",
    ),
    "HAP756": Explanation(
        "checkpoints would be overwritten",
        "The folder holds checkpoints that this run doesn't go on from. Nothing is overwritten: resume from the newest of them, or write to "
        "another folder.",
        "hapdsl run plan.hap --checkpoint old --every 10",
        "hapdsl run plan.hap --checkpoint old --every 10 --resume old",
    ),
    "HAP757": Explanation(
        "a run that goes on otherwise than it began",
        "A checkpoint keeps the seed and the data of its run, so that batches and dropout go on as if nothing had happened. Data from a file "
        "or a module must be named again: a checkpoint makes nobody read or import anything.",
        "hapdsl run plan.hap --resume checkpoints --seed 7",
        "hapdsl run plan.hap --resume checkpoints --data mine.npz",
    ),
    "HAP760": Explanation(
        "a rank that is lost",
        "Every rank gives a sign of life each second, over the network. Nothing was heard of this one for a quarter of a minute: its process is "
        "stopped, or its machine is cut off or down. The run was ended; checkpoints that were written are whole.",
    ),
    "HAP761": Explanation(
        "nothing to replan for",
        "`--replan` plans for the devices that are left when one is lost. It needs to know the program's cluster, at least one device, and "
        "processes that it has started itself: under torchrun others start them.",
        "program p for mlp { … }",
        "program p for mlp on rack { … }",
    ),
    "HAP762": Explanation(
        "ranks that were started differently",
        "Under torchrun each process reads its own command line. Steps, seed, data and checkpoints must be the same on all of them.",
    ),
    "HAP763": Explanation(
        "a rank that hangs",
        "The process is there and answers, but does nothing that the others wait for: its data never come, or a kernel never ends. They have waited "
        "for `--timeout` seconds in one collective. If a step may really take so long on one device, allow more.",
        "hapdsl run plan.hap --timeout 5",
        "hapdsl run plan.hap --timeout 600",
    ),
    "HAP764": Explanation(
        "a step that ended in the middle of its updates",
        "New parameters are written over the old ones, so when a step fails or is interrupted on its way, some are this step's and some the last "
        "one's. They are no state to go on from, and none that is written: the last checkpoint is.",
    ),
}
