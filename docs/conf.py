"""The documentation site: `make docs` builds it into site/ and fails on a warning or a dead link."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]

project = "mona"
author = "the mona authors"
copyright = "the mona authors, Apache-2.0"
release = re.search(r'__version__ = "(.+)"', (ROOT / "mona_infer/__init__.py").read_text()).group(1)

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_heading_anchors = 3  # the same anchors as GitHub makes: #a-heading
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 88
add_module_names = False
default_role = "code"  # docstrings name things in single backticks
maximum_signature_line_length = 88

html_theme = "furo"
html_title = f"mona {release}"
html_static_path = ["_static"]
html_css_files = ["mona.css"]
html_show_sphinx = False
html_copy_source = False
