"""The application: configuration, wiring, the decode loop and the command line.

`cli` and `options` parse the command line, `structure` turns it and a TOML file into a `config`,
and `wiring` turns that into a `decoder` or an engine. `request` holds requests and results. A step
of decoding is in `decode`: a `drafter` (`model_drafter`, `head_drafter`) drafts after a `frontier`,
the target scores, and a sampler verifies. `verdicts` reads the decisions back, and `request_state`
turns them into tokens and text, and ends the request. `report` measures a run and prints it. The
engine, benchmarks, tuning, the audit, `hugging_face` (generation by the transformers library) and
`vllm_plugin` have rooms of their own.
"""
