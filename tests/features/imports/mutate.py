"""Logs with random changes, which must not crash the readers: ``python -m tests.features.imports.mutate``."""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import wirespeed
from tests.conftest import GOLDEN
from wirespeed.errors import UsageError
from wirespeed.results.store import decode, encode

PUBLISHED = Path(__file__).parents[2] / "data/published"
#: What is changed: small logs of every format.
SEEDS = (
    PUBLISHED / "nvbandwidth-a100-readme.txt", PUBLISHED / "nvbandwidth-gb300-station.txt",
    PUBLISHED / "asked/nvbandwidth-a6000-issue50.txt", PUBLISHED / "asked/p2p-h100-nccl-issue1264.txt",
    PUBLISHED / "babelstream-h200-azure.txt", PUBLISHED / "mlc-cnf-testbed.txt",
    PUBLISHED / "nccl-tests-gb200-azure.txt", GOLDEN / "collectives/form-per-iteration.txt",
    GOLDEN / "collectives/all_reduce.json", GOLDEN / "hgx-h200-2/nvbandwidth-json.json",
)  # fmt: skip
OSU = "# OSU MPI Bi-Directional Bandwidth Test v7.3\n# Size      Bandwidth (MB/s)\n1     2.5\n64    99.1\n"
_WORDS = (
    "N/A", "-1", "0", "1e999", "999999999999999999999", "nan", "inf", "1e308", "-0.0", "\x00", "\x1b[2J",
    "{", "}", "[", "null", "true", '"', "gpu0", "Running x.", "SUM a 1", "Device 0: x", "\u202e", "0 1 2 3",
    "1024", "#",
)  # fmt: skip


def mutated(text: str, random: random.Random) -> str:
    """Return a text with one to six random changes of lines, words, characters or its length."""
    if text.startswith("{") and random.randrange(2):  # the others break JSON, and such a file is refused
        return changed_json(json.loads(text), random)
    for _ in range(random.randint(1, 6)):
        lines = text.split("\n")
        i = random.randrange(len(lines))
        words = lines[i].split(" ")
        j = random.randrange(len(words))
        kind = random.randrange(8)
        if kind == 0:
            text = text[: random.randrange(len(text) + 1)]
        elif kind == 1:
            del lines[i]
        elif kind == 2:
            lines.insert(i, lines[random.randrange(len(lines))])
        elif kind == 3:
            words[j] = random.choice(_WORDS)
        elif kind == 4:
            del words[j]
        elif kind == 5:
            at = random.randrange(len(text) + 1)
            text = (
                text[:at] + chr(random.choice((random.randrange(128), random.randrange(0xD7FF)))) + text[at:]
            )
        elif kind == 6:
            words[j] = words[j] * random.choice((2, 50))
        else:
            random.shuffle(lines)
        if kind in (3, 4, 6):
            lines[i] = " ".join(words)
        if kind not in (0, 5):
            text = "\n".join(lines)
    return text


def changed_json(content: Any, random: random.Random) -> str:
    """Return JSON with one to six random values replaced or removed."""
    for _ in range(random.randint(1, 6)):
        owner: Any = content
        while True:
            key = random.choice([*owner] if isinstance(owner, dict) else range(len(owner)))
            inner = owner[key]
            if not (isinstance(inner, (dict, list)) and inner and random.randrange(8)):
                break
            owner = inner
        if random.randrange(3) or len(owner) == 1:
            owner[key] = random.choice([*_WORDS, -1, 0, 1e300, 2**70, None, True, [], {}, [{}], [[]]])
        else:
            del owner[key]
    return json.dumps(content)


def attempt(path: Path, text: str, machine: str | None) -> str:
    """Import a text, judge it and print it; return what came of it."""
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        document = wirespeed.load_log(path, machine)
    except UsageError as error:
        assert "\n" not in str(error)
        return "refused"
    assert decode(encode(document), "it") == document
    check = wirespeed.judge(document)
    wirespeed.render(document)
    return str(check.verdict)


def main(arguments: Sequence[str]) -> None:
    """Try a number of mutated logs; print the results and the first crash."""
    count, seed = int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 0
    texts = [*(path.read_text() for path in SEEDS), OSU]
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for i in range(seed, seed + count):
            source = random.Random(i)
            text = mutated(source.choice(texts), source)
            machine = source.choice((None, None, None, None, None, "hgx-h100-8", "simulated:dgx-a100-8"))
            try:
                found[attempt(Path(folder) / "log", text, machine)] += 1
            except Exception:
                print(f"log {i} with {machine}:\n{text}", file=sys.stderr)
                raise
    print(f"{count} logs: {dict(found)}")


if __name__ == "__main__":
    main(sys.argv[1:])
