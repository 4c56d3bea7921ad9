from importlib.metadata import version as installed_version

project = "acceptor"
author = "The acceptor authors"
copyright = author
version = release = installed_version("acceptor")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "data"]
html_theme = "furo"
html_title = "acceptor"

# Names in docstrings stand in single backticks.
default_role = "code"
nitpicky = False
myst_heading_anchors = 3
autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_numpy_docstring = False
# attrs fields are described once, in the class docstring.
napoleon_use_ivar = True
