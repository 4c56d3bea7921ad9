"""How Sphinx builds these pages."""

import inspect
from importlib.metadata import version as installed_version
from pydoc import locate

from docutils.nodes import Node
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

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


class Entries(SphinxDirective):
    """`.. entries:: A B` describes classes, errors and functions of the current module."""

    required_arguments = 1
    optional_arguments = 1000

    def run(self) -> list[Node]:
        """What autodoc makes of each."""
        module = self.env.ref_context.get("py:module", "")
        names = [
            one if one.startswith("acceptor.") else f"{module}.{one}" for one in self.arguments
        ]
        return self.parse_text_to_nodes("\n".join(f".. {kind(name)}:: {name}" for name in names))


def kind(name: str) -> str:
    """The directive for an object."""
    found = locate(name)
    if not inspect.isclass(found):
        return "autofunction"
    return "autoexception" if issubclass(found, Exception) else "autoclass"


def setup(app: Sphinx) -> None:
    """Make the directive known."""
    app.add_directive("entries", Entries)
