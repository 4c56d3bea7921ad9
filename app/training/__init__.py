"""Makes the bundled pair: text files in, a target and a draft directory out.

Run it with `python -m acceptor.app.training --help`. Nothing at run time imports this package.
"""
