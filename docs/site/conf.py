"""Settings of Sphinx for the site: see docs/make_site.py."""

import dataclasses
import inspect
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.domains.python import PyObject
from sphinx.util.docstrings import prepare_docstring

from beam_tfr import __version__

project = "beam_tfr"
copyright = "the authors of beam_tfr"  # noqa: A001 - Sphinx's name
release = __version__
version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
highlight_language = "text"
smartquotes = False  # docstrings quote code

myst_heading_anchors = 4  # links lead to headings, as on GitHub
myst_links_external_new_tab = False

autodoc_mock_imports = ["keras", "tensorflow", "torch"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 88
default_role = "code"  # docstrings have names in single backticks
napoleon_use_ivar = True  # attributes of a docstring are no second description
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"beam_tfr {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False


SHORT = 32  # characters of a word in code that is kept whole, also on a phone


def setup(app: Sphinx) -> None:
    """Mends what Sphinx makes of docstrings."""
    app.connect("autodoc-process-docstring", _keep_colons, priority=600)  # after Napoleon
    app.connect("autodoc-process-signature", _hide_fields)
    app.connect("doctree-resolved", _mark_short)
    for field in PyObject.doc_field_types:
        if field.name == "variable":
            field.label = "Attributes"


def _keep_colons(_: Sphinx, what: str, __: str, value: object, ___: object, lines: Any) -> None:
    """Restores the docstring of a property, whose first colon Napoleon takes for a type."""
    if what == "property":
        lines[:] = prepare_docstring(inspect.getdoc(value) or "")


def _hide_fields(_: Sphinx, what: str, name: str, value: object, *__: Any) -> Any:
    """Hides how results are made: nobody but beam_tfr makes them."""
    is_result = dataclasses.is_dataclass(value) or hasattr(value, "_fields")
    if what == "class" and is_result and not name.startswith("beam_tfr.transforms"):
        return "", None
    return None


def _mark_short(_: Sphinx, page: nodes.document, __: str) -> None:
    """Marks code of short words, which site.css keeps whole."""
    for literal in page.findall(nodes.literal):
        words = literal.astext().split()
        if all(len(word) <= SHORT for word in words):
            literal["classes"].append("short")
