"""`acceptor bench`: serves requests through the engine and measures speed and acceptance.

`command` holds the flags, and `main` turns them into a `run.Bench`. A run has a `pair` of models
(perhaps one of the `public_pairs` with its `shapes`), a `sweep` of settings and one load, whose
prompts and `requests` are made and served. `figures` computes counts, throughput and `latency` from
the engine's records, and `results` holds them. `tables`, `comparison` and `markdown` show them, and
`plots` draws them. `table` and `files` write every table, record and picture, including those of
`acceptor tune` (in `acceptor.app.tuning`) and of `acceptor bench kernels` (in `kernels` here).
"""
