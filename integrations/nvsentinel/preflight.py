#!/usr/bin/env python3
"""Preflight check of NVSentinel: check the GPUs of a pod before it starts, and report a health event.

    preflight.py [COMMAND ...]      default: wirespeed check --within 20s --no-save

NVSentinel's webhook injects it as an init container (values.yaml) with the variables NODE_NAME,
PLATFORM_CONNECTOR_SOCKET and PROCESSING_STRATEGY. The exit codes are those of its own checks: 0 passed,
1 failed, 2 not installed correctly, 3 the event could not be sent. Only a failure of the hardware or a broken
check keeps the pod from starting: a warning is an event that is not fatal, and what was not judged is no
event. With STORE_ONLY, nothing keeps the pod from starting.

The event is NVSentinel's message HealthEvents (data-models/protobufs/health_event.proto), sent over gRPC.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence

METHOD = "/datamodels.PlatformConnector/HealthEventOccurredV1"
COMMAND = ("wirespeed", "check", "--within", "20s", "--no-save")
PASSED, FAILED, BROKEN, NOT_SENT = 0, 1, 2, 3
#: Exit codes of `wirespeed check`.
PASS, FAIL, WARN, NOT_JUDGED = 0, 1, 3, 4
#: NVSentinel's RecommendedAction and ProcessingStrategy.
NONE, CONTACT_SUPPORT = 0, 5
STRATEGIES = {"EXECUTE_REMEDIATION": 1, "STORE_ONLY": 2}
#: Maximum time of an attempt to send the event, in s, number of attempts, and the time between them.
SEND_S, ATTEMPTS, DELAY_S = 30.0, 5, 2.0


def main(command: Sequence[str], environment: dict[str, str]) -> int:
    """Check, report the event, and return the exit code."""
    code = check(command or COMMAND, environment)
    if code and environment.get("PROCESSING_STRATEGY") == "STORE_ONLY":
        print(f"exit code {code} is ignored: STORE_ONLY", flush=True)
        return PASSED
    return code


def check(command: Sequence[str], environment: dict[str, str]) -> int:
    """Run a command of wirespeed that judges, and report the event."""
    try:
        done = subprocess.run([*command, "--format", "json"], stdout=subprocess.PIPE, check=False)
        (run,) = json.loads(done.stdout)["runs"]
        line = f"wirespeed {run['verdict']}: {run['sentence']}"
        line += f"; remedy: {run['remedy']}" if run["remedy"] else ""
    except (OSError, ValueError, KeyError) as error:
        print(f"wirespeed gave no verdict: {error}", file=sys.stderr, flush=True)
        return BROKEN
    print(line, flush=True)
    if done.returncode not in (PASS, FAIL, WARN, NOT_JUDGED):
        return BROKEN
    if done.returncode == NOT_JUDGED:
        return PASSED
    try:
        send(encoded(done.returncode, line, environment), environment["PLATFORM_CONNECTOR_SOCKET"])
    except Exception as error:  # of any kind: the event is missing
        print(f"the event was not sent: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return NOT_SENT
    return FAILED if done.returncode == FAIL else PASSED


def encoded(code: int, message: str, environment: dict[str, str], now: float | None = None) -> bytes:
    """The message HealthEvents with the event of a verdict."""
    now = time.time() if now is None else now
    event = b"".join(
        (
            number(1, 1),
            text(2, "preflight-wirespeed"),
            text(3, "Node"),
            text(4, "WirespeedCheck"),
            number(5, code == FAIL),
            number(6, code == PASS),
            text(7, message),
            number(8, CONTACT_SUPPORT if code == FAIL else NONE),
            *([text(9, "DATA_PATH_FAIL" if code == FAIL else "DATA_PATH_WARN")] if code != PASS else []),
            field(12, number(1, int(now)) + number(2, int(now % 1 * 1e9))),
            text(13, environment["NODE_NAME"]),
            number(16, STRATEGIES.get(environment.get("PROCESSING_STRATEGY", ""), 1)),
        )
    )
    return number(1, 1) + field(2, event)


def field(tag: int, content: bytes) -> bytes:
    """A field of protobuf that has a length."""
    return varint(tag << 3 | 2) + varint(len(content)) + content


def text(tag: int, content: str) -> bytes:
    """A text field of protobuf."""
    return field(tag, content.encode())


def number(tag: int, value: int) -> bytes:
    """A number field of protobuf; 0 is left out."""
    return varint(tag << 3) + varint(value) if value else b""


def varint(value: int) -> bytes:
    """A number of protobuf."""
    groups = []
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


def send(message: bytes, socket: str) -> None:
    """Send a message to the platform connector of the node."""
    import grpc

    for attempt in range(ATTEMPTS):
        try:
            with grpc.insecure_channel(f"unix://{socket.removeprefix('unix://')}") as channel:
                channel.unary_unary(METHOD, None, None)(message, timeout=SEND_S)
                return
        except grpc.RpcError:
            if attempt == ATTEMPTS - 1:
                raise
            time.sleep(DELAY_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], dict(os.environ)))
