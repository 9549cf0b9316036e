"""Templates of pages and of their parts; a page permits only its own style and script."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ...terminal import one_line, visible
from ...units import GB, format_size, many
from ...version import __version__
from ..check_texts import applicable, gate_text
from ..comparisons import difference, moved, values_of
from ..looks import css_of, marked, shown
from ..values import number

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def rendered(template: str, style: str, script: str = "", **variables: Any) -> str:
    """Render a template with the version of wirespeed.

    Args:
        template: Its file, as `source` reads it; a page extends ``base.html``.
        style, script: CSS and JavaScript, the only ones that the page permits.
        **variables: The variables of the template.
    """
    from markupsafe import Markup

    text: str = _environment().get_template(template).render(
        style=Markup(style), script=Markup(script), policy=_policy(style, script), version=__version__,
        **variables,
    )  # fmt: skip
    return text


def made(template: str, macro: str, *arguments: Any, **variables: Any) -> Markup:
    """What a macro of a template makes of its arguments; the template has these variables, too."""
    functions = _environment().get_template(template, globals=variables).module
    text: Markup = getattr(functions, macro)(*arguments)
    return text


def source(name: str) -> str:
    """Text of a file of this folder, or of a package as ``"package:file"``."""
    package, _, file = name.rpartition(":")
    return (files(package or __package__) / file).read_text("utf-8")


def capital(text: str) -> str:
    """A sentence with a capital letter, unless it begins with a name such as ``gpu1``."""
    return text[:1].upper() + text[1:] if text.partition(" ")[0].isalpha() else text


@lru_cache(maxsize=1)
def _environment() -> Environment:
    import jinja2
    from markupsafe import Markup, escape

    def harmless(value: Any) -> Any:
        return visible(value) if type(value) is str else value

    def broken(text: str) -> Markup:
        """Let a name break after its underscores."""
        return Markup(str(escape(visible(text))).replace("_", "_<wbr>"))

    def whole(text: str) -> Markup:
        """Keep names and options with hyphens on one line where they fit."""
        return Markup(
            re.sub(r"\S*\w-\S+|--\S+", r'<span class="whole">\g<0></span>', str(escape(visible(text))))
        )

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(source), autoescape=True, finalize=harmless, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.globals |= {
        "many": many, "broken": broken, "whole": whole,
        "shown": shown, "css_of": css_of, "marked": marked, "moved": moved,
        "difference": difference, "values_of": values_of, "number": number, "GB": GB,
        "applicable": applicable, "gate_text": gate_text, "capital": capital,
        "format_size": format_size, "one_line": one_line,
    }  # fmt: skip
    return environment


def _policy(style: str, script: str) -> str:
    """The Content-Security-Policy: only the page's own style and script, no other sources."""

    def digest(text: str) -> str:
        return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"

    return (
        f"default-src 'none'; script-src {digest(script)}; style-src {digest(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
