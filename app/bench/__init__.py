"""`acceptor bench`: serves requests through the engine and says how fast, and how drafts fared.

`command` and `options` hold the flags, `main` turns them into a `run.Bench`. A run has a `pair` of
models, perhaps one of the `public_pairs` in its `shapes`, a `sweep` of settings and one load;
`requests` makes requests of `prompts` and puts them to an engine while `progress` shows how far it
is. `figures` computes, from what the engine recorded, counts, throughput and `latency`, and
`results` holds them. `rows` says what the rows of tables are; `tables`, `comparison` and `markdown`
show them, `plots` draws them. `table`, `files` and `picture` write every table, file and picture,
those of `acceptor tune` and of `acceptor bench kernels`, too, whose rooms are `acceptor.app.tuning`
and `kernels` here.
"""
