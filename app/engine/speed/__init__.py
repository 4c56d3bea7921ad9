"""How fast the engine is on a GPU, and where a step's time goes.

`python -m acceptor.app.engine.speed` measures and writes the documentation's numbers.
"""
