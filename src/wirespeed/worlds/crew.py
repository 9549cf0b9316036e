"""The processes of a World as a crew: rank 0 gives tasks to the other ranks, and goes on without those that
are lost. All have the same options, and rank 0 may open enough connections.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ..terminal import one_line
from .base import RankLost, World, WorldError
from .channel import InvalidMessage, arrived

#: Time for the others to end a task that took rank 0 longer than the maximum, in s.
_BEHIND_S = 5.0
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
            seconds: Maximum time, in s; who answers neither then nor soon behind rank 0 is lost.
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
        answers = {}
        if 0 in tasks:
            answers[0] = own(tasks[0])
            deadline = max(deadline, time.monotonic() + _BEHIND_S)
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
