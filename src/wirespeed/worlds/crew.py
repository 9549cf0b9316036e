"""A crew: rank 0 gives tasks to the other ranks, and goes on without those that are lost.

The limit of open files of a process, which is often 1024.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping
from typing import Any

from .base import RankLost, World, WorldError
from .channel import arrived

#: Tells a rank that there are no more tasks.
_NO_MORE = -1


class Crew:
    """The ranks of a World that take tasks.

    Attributes:
        world: The World, of which nothing else is used meanwhile.

    Attributes:
        lost: Ranks that have not joined, have ended or do not answer -> what is the matter, after their name.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.lost = dict(world.absent)
        self._number = 0

    def ask(self, tasks: Mapping[int, object], seconds: float, own: Callable[[Any], Any]) -> dict[int, Any]:
        """On rank 0: give each rank its task; the answers of those that give one.

        Args:
            tasks: Rank -> its task, of values that MessagePack supports. Ranks that are lost get none.
            seconds: Maximum time, in s; who has not answered then is lost.
            own: Does rank 0's own task.
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
                except (EOFError, OSError):
                    self.lost[rank] = "has ended"
                else:
                    if number == self._number:
                        answers[rank] = answer
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
