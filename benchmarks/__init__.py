"""What is measured, and the tables that come of it. Run one as `python -m benchmarks.NAME`; each says with --help what it takes.

    search      the search, by layers, devices, models and ways; and every example beside the baselines
    paper       the evaluation of HAP's paper, in simulation
    pricing     pricing a program, and pricing it again behind an edit
    explorer    what a person waits for in the explorer
    emulate     plans beside PyTorch's own ways, on an emulated cluster (as root)
    accuracy    predictions beside what programs take there (as root)
    runner      what the runner itself costs, beside eager PyTorch and DDP
    soak        runs killed at random, again and again
    tables      all tables from the rows in benchmarks/results, measuring nothing
    summary     the README's table, likewise

`campaign` is the command line that they share, `rows` what they keep, `pages` where tables go. What is measured in a fresh interpreter stands in
`measure` (search), `paper_measure`, `pricing_measure` and `explorer_measure`; `apart` starts it, `process` looks at processes. `cases` and
`paper_cases` list the cases, `table` and `paper_table` make tables of rows, `reference` and `paper_reference` hold what others published,
`paper_claims` says what must hold of the paper's rows. `emulated` makes the cluster, `rivals` the steps that are compared there, of `modules`
where they are PyTorch's; `eager` is a transformer by hand, beside which `runner` runs.
"""
