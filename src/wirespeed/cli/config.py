"""``wirespeed config``: defaults of options, and where they come from."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ExitCode
from ..terminal import visible
from . import configuration
from .parser import Parser


def main(name: str, argv: Sequence[str]) -> int:
    parser(name).parse_args(argv)
    files = configuration.files()
    settings = configuration.settings(existing=files)
    for file in files:
        print(visible(f"not read {file.path}: {file.refused}" if file.refused else f"read {file.path}"))
    for setting in settings:
        value = "false" if setting.is_off else ", ".join(setting.values) or "true"
        print(visible(f"{setting.command}.{setting.option} = {value}  ({setting.origin})"))
    if not settings:
        print("no defaults are configured")
    return ExitCode.PASS


def parser(name: str) -> Parser:
    return Parser(
        name,
        "Show the defaults of options from files and from the environment. In order of precedence:\n"
        "the command line, WIRESPEED_... variables (WIRESPEED_TIMEOUT=2min), the nearest wirespeed.toml in\n"
        "your folders from this one on upwards, and ~/.config/wirespeed.toml. A file has a table for each\n"
        "command, and [defaults] for all commands that have an option:\n\n"
        '    [defaults]\n    timeout = "2min"\n\n    [check]\n    wait-idle = "1min"\n\n'
        "[expect] has what each host should have, as check --expect; the strictest of all counts:\n\n"
        '    [expect]\n    gpus = 8\n    memory = "1TiB"\n\n'
        "Files that other users can write are not read. A project's file cannot set files to read or write,\n"
        "devices, or what is accepted: overrides, baselines, tolerances, unverified data.",
    )
