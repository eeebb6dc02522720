"""Transfers between nodes, and work that idle nodes take."""

import heapq


class Network:
    """Links of nodes to a switch that does not limit them, full duplex.

    A direction of a link carries one transfer after the other, in the order of the calls. A transfer goes in
    small pieces, so it is there when both links have carried it, and neither waits for the other.
    """

    def __init__(self, nodes, rate):
        self._rate = rate
        self._up, self._down = [0.0] * nodes, [0.0] * nodes
        self.sent = [0] * nodes

    def send(self, source, target, size, ready):
        """When `size` bytes are there that may leave at `ready`."""
        if source == target or not size:
            return ready
        self._up[source] = max(ready, self._up[source]) + size / self._rate
        self._down[target] = max(ready, self._down[target]) + size / self._rate
        self.sent[source] += size
        return max(self._up[source], self._down[target])

    def idle(self, source):
        """When the node could send."""
        return self._up[source]


def take_in_turn(free, jobs, start, end):
    """Idle nodes take the next job, in the order of the list: list scheduling. Returns when the last result
    is there. Both functions are called in the order of time, so that transfers are.

    Args:
        free: when each node is idle.
        start(node, job, time): when the node will have done it.
        end(node, job, time): when the result is there.
    """
    events = [(time, node, None) for node, time in enumerate(free)]
    heapq.heapify(events)
    waiting = iter(jobs)
    last = max(free)
    while events:
        time, node, done = heapq.heappop(events)
        if done is not None:
            last = max(last, end(node, done, time))
        if (job := next(waiting, None)) is not None:
            heapq.heappush(events, (start(node, job, time), node, job))
    return last
