"""What the processes of a World do together: tasks, options that must be equal, and clocks that are compared.

A crew: rank 0 gives tasks to the other ranks, and goes on without those that are lost.

Offsets between the clocks of hosts, so that all hosts can start something at the same time.

The limit of open files of a process, which is often 1024.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from ..errors import MeasurementTimeout
from ..terminal import one_line
from .base import InvalidMessage, RankLost, World, WorldError, arrived

#: Tells a rank that there are no more tasks.
_NO_MORE = -1


class Crew:
    """The ranks of a World that take tasks.

    Args:
        world: The World, of which nothing else is used meanwhile.

    Attributes:
        lost: Ranks that have not joined, have ended or do not answer -> what is the matter, after their name.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.lost = dict(world.absent)
        self._number = 0

    def ask(
        self, tasks: Mapping[int, object], seconds: float, own: Callable[[Any], Any], kind: Any = Any
    ) -> dict[int, Any]:
        """On rank 0: give each rank its task; the answers of those that give one.

        Args:
            tasks: Rank -> its task, of values that MessagePack supports. Ranks that are lost get none.
            seconds: Maximum time, in s; who has not answered then is lost.
            own: Does rank 0's own task.
            kind: The type of each answer, with the limits of its numbers; who gives another one is lost.
        """
        self._number += 1
        deadline = time.monotonic() + seconds
        waiting = {}
        for rank, link in self.world.links.items():
            if rank in tasks and rank not in self.lost:
                try:
                    link.send([self._number, tasks[rank]], deadline)
                    waiting[link] = rank
                except OSError:
                    self.lost[rank] = "has ended"
        answers = {0: own(tasks[0])} if 0 in tasks else {}
        while waiting and (left := deadline - time.monotonic()) > 0:
            for link in arrived(waiting, left):
                rank = waiting.pop(link)
                try:
                    number, answer = link.receive(deadline, tuple[int, Any])
                except TimeoutError:
                    self.lost[rank] = "does not answer"
                except InvalidMessage as error:
                    self.lost[rank] = f"sent {one_line(str(error))}"
                except (EOFError, OSError):
                    self.lost[rank] = "has ended"
                else:
                    if number == self._number:
                        try:
                            answers[rank] = msgspec.convert(answer, kind)
                        except (msgspec.ValidationError, RecursionError) as error:
                            self.lost[rank] = f"sent an invalid answer: {one_line(str(error))}"
        self.lost |= dict.fromkeys(waiting.values(), "does not answer")
        return answers

    def dismiss(self, seconds: float) -> None:
        """On rank 0: inform the others that there are no more tasks."""
        deadline = time.monotonic() + seconds
        for rank, link in self.world.links.items():
            if rank not in self.lost:
                try:
                    link.send([_NO_MORE, None], deadline)
                except OSError:
                    continue  # it has ended, too

    def serve(self, work: Callable[[Any], Any], patience: float) -> None:
        """On other ranks: do the tasks that rank 0 gives, until there are no more.

        Args:
            work: Does a task; returns the answer.
            patience: Maximum time between two tasks, in s.

        Raises:
            RankLost: If rank 0 has ended or gives no task within the timeout.
        """
        link = self.world.links[0]
        while True:
            try:
                number, task = link.receive(time.monotonic() + patience, tuple[int, Any])
                if number == _NO_MORE:
                    return
                answer = work(task)
                link.send([number, answer], time.monotonic() + patience)
            except TimeoutError:
                self.world.leaderless = True
                raise RankLost(f"rank 0 gave no task for {patience:g} s") from None
            except (EOFError, OSError):
                raise RankLost("rank 0 has ended") from None


#: Open files other than connections with ranks: listeners, connections not admitted yet, files.
_OTHERS = 512


def allow_open_files(connections: int) -> None:
    """Raise the limit to what the connections of rank 0 require.

    Args:
        connections: Number of connections with other ranks.

    Raises:
        WorldError: If the system does not permit as many.
    """
    needed = connections + _OTHERS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise WorldError(
            f"rank 0 requires {needed} open files for its connections, but may have {hard}: raise the limit "
            f"(ulimit -Hn {needed}, or LimitNOFILE= of the service that starts the job)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def agree_on(world: World, options: dict[str, object]) -> None:
    """Compare the options of all ranks.

    Args:
        world: The processes; all must call it.
        options: Name -> value of this process.

    Raises:
        WorldError: For the first option that differs, with the rank.
    """
    everyone = world.allgather(options, "comparing options")
    first = everyone[0]
    for rank, other in enumerate(everyone):
        if not isinstance(other, dict) or not all(isinstance(name, str) for name in other):
            raise WorldError(f"{world.members[rank]} sent no options")
        for name in sorted(first.keys() | other.keys()):
            if other.get(name) != first.get(name):
                raise WorldError(
                    f"the ranks have different options: {one_line(name)} is {other.get(name)!r} on "
                    f"{world.members[rank]} and {first.get(name)!r} on rank 0"
                )


#: Number of round trips, of which the shortest counts.
_ROUND_TRIPS = 40


@dataclass(frozen=True)
class Clocks:
    """The monotonic clocks of all ranks, compared with rank 0's.

    Attributes:
        offsets: By rank: its clock minus rank 0's, in ns.
        errors: By rank: half of the shortest round trip, in ns; bounds the error of the offset.
    """

    offsets: tuple[int, ...]
    errors: tuple[int, ...]

    @property
    def error(self) -> float:
        """Maximum start skew between two hosts, in s."""
        known = sorted(self.errors)
        return (known[-1] + known[-2]) * 1e-9 if len(known) > 1 else 0.0

    @property
    def lead(self) -> int:
        """Time between agreeing on a start and the start, in ns."""
        return 8 * max(self.errors)


def _measure_clock(world: World, rank: int) -> tuple[int, int]:
    """Compare a rank's clock with rank 0's. All ranks must call it; only these two take part.

    Returns:
        On rank 0: that clock minus this one, and half of the shortest round trip, in ns.

    Raises:
        RankLost: If that rank or rank 0 has ended.
    """
    if world.rank not in (0, rank):
        return 0, 0
    other = 0 if world.rank else rank
    link = world.links[other]
    deadline = time.monotonic() + world.timeout
    best = (0, 2**62)
    try:
        for _ in range(_ROUND_TRIPS):
            if world.rank:
                link.receive(deadline, int)
                link.send(time.monotonic_ns(), deadline)
                continue
            start = time.monotonic_ns()
            link.send(start, deadline)
            there, end = link.receive(deadline, int), time.monotonic_ns()
            best = min(best, (there - (start + end) // 2, (end - start) // 2 + 1), key=lambda b: b[1])
    except TimeoutError:
        stage = f"waiting for {world.members[other]} while comparing clocks"
        raise MeasurementTimeout(stage, world.timeout) from None
    except (EOFError, OSError) as error:
        raise RankLost(world.reason_for(other, "comparing clocks", error)) from None
    return best


def compare(world: World) -> Clocks:
    """Compare the clocks of all hosts; processes of one host share a clock. All must call it.

    Source: the method of the Network Time Protocol, RFC 5905: half of the shortest of several round trips
    bounds the error.
    """
    leaders = [next(m.rank for m in world.members if m.host == host) for host in world.hosts]
    measured = {leaders[0]: (0, 0)}
    for rank in leaders[1:]:
        measured[rank] = _measure_clock(world, rank)
    everyone = world.broadcast([[k, *v] for k, v in measured.items()], "comparing clocks")
    known = {rank: (offset, error) for rank, offset, error in everyone}
    by_host = {world.members[rank].host: known[rank] for rank in leaders}
    pairs = [by_host[member.host] for member in world.members]
    return Clocks(tuple(p[0] for p in pairs), tuple(p[1] for p in pairs))
