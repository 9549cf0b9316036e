"""``wirespeed config``: defaults of options, and where they come from."""

from __future__ import annotations

from collections.abc import Sequence

from ..terminal import visible
from . import configuration
from .common import OK, parser


def main(name: str, argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    arguments = parser(
        name,
        "Show the defaults of options from files and from the environment. In order of precedence:\n"
        "the command line, WIRESPEED_... variables (WIRESPEED_TIMEOUT=2min), the nearest wirespeed.toml in\n"
        "this folder or one above it, and ~/.config/wirespeed.toml. A file has a table for each command,\n"
        "and [defaults] for all commands that have an option:\n\n"
        '    [defaults]\n    timeout = "2min"\n\n    [check]\n    gates = ["azure"]',
    )
    arguments.parse_args(argv)
    found = configuration.settings()
    for file in configuration.files():
        print(visible(f"read {file}"))
    for one in found:
        value = "false" if one.is_off else ", ".join(one.values) or "true"
        print(visible(f"{one.command}.{one.option} = {value}  ({one.origin})"))
    if not found:
        print("no defaults are configured")
    return OK
