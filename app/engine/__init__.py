"""The engine: requests enter and leave a running batch.

Start with `acceptor.app.engine.engine.Engine`; `acceptor.app.wiring` makes one from a config.
"""
