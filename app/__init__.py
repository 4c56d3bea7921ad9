"""The application: configuration, wiring, the decode loop and the command line.

`cli` and `options` parse the command line, `structure` makes a `config` of it and of a TOML file,
and `wiring` makes a `decoder` or an engine of that. `request` says what is asked for and what comes
back. A step of decoding is in `decode`: a `drafter` (`model_drafter`, `ngram_drafter`) drafts
behind a `frontier`, the target scores, a sampler verifies, and `verdicts` reads back what was
decided, which `request_state` turns into tokens, text and an end. `report` measures a run and
prints it. The engine, benchmarks, tuning and `hugging_face`, which is for generation by the
transformers library, have rooms of their own.
"""
