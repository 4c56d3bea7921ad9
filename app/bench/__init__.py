"""`acceptor bench`: serves requests through the engine and measures speed and acceptance.

`command` and `options` hold the flags, and `main` turns them into a `run.Bench`. A run has a `pair`
of models (perhaps one of the `public_pairs` with its `shapes`), a `sweep` of settings and one load;
`requests` makes requests from `prompts` and serves them, while `progress` shows a bar. `figures`
computes counts, throughput and `latency` from the engine's records, and `results` holds them.
`rows` defines the rows of tables; `tables`, `comparison` and `markdown` show them, and `plots`
draws them. `table`, `files` and `picture` write every table, file and picture, including those of
`acceptor tune` (in `acceptor.app.tuning`) and of `acceptor bench kernels` (in `kernels` here).
"""
