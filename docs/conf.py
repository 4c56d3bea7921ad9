"""How Sphinx builds these pages."""

import inspect
import re
from importlib.metadata import version as installed_version
from pydoc import locate
from typing import Any

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


def readable(*event: Any) -> tuple[str | None, str | None]:
    """A signature: functions and enums among defaults by name, no arguments for protocols."""
    described, arguments, result = event[3], event[5], event[6]
    if arguments is None or getattr(described, "_is_protocol", False):
        return "" if arguments else None, result
    named = re.sub(r"<function (?:\S*\.)?(\w+)>", r"\1", arguments)
    return re.sub(r"<(\w+\.\w+): [^>]*>", r"\1", named), result


def setup(app: Sphinx) -> None:
    """Make the directive and readable signatures known."""
    app.add_directive("entries", Entries)
    app.connect("autodoc-process-signature", readable)
