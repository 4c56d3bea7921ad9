"""`acceptor tune`: measures one run, predicts tokens per second, and recommends policy and K.

`command` holds the flags, and `tuner` turns them into a run. For each policy `measure` serves
requests through an engine and times its steps. This gives a `profile` of how far drafts are
accepted and the `costs` of a step, from which `goodput` predicts. `results` holds all numbers and
shows them. `adaptive` chooses K anew in each step by the same model, for `acceptor bench
--adaptive`.
"""
