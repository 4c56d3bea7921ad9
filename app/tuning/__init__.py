"""`acceptor tune`: measures one run, predicts tokens per second, and recommends policy and K.

`command` holds the flags, `main` turns them into a `tuner.Tuner`. For each policy `measure` serves
requests through an engine and times its steps. From these come a `profile` of how far drafts are
accepted and the `costs` of a step, and from both `goodput` predicts. `results` holds all of it,
`tables` show it. `adaptive` chooses K anew in each step by the same model, for `acceptor bench
--adaptive`.
"""
