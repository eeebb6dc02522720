"""One block of a model on several nodes, in three ways. All times are seconds from the block's begin.

Node 0 runs the client or driver, and is a worker as well. Blocks come one after the other, so a model takes
as many times a block. The steps within a block:

1. forward passes with the Gram sums of the inputs, as many as the memory of the sums needs;
2. Gram matrices to the nodes;
3. weights to the nodes, solves, masks to the client;
4. with refinement a forward pass of the dense block, and the steps; a forward pass of the pruned block.
"""

import collections
import dataclasses
import math
import typing

from network import Network, take_in_turn
from shapes import BFLOAT16, FLOAT32, FLOAT64

SPLIT_ABOVE = 2048 * 2048
GRAM_MEMORY = 4 << 30
# Bytes of a strip of a Gram matrix in float32, at least.
STRIP_BYTES = 32 << 20
# Bytes of a weight in a mask.
MASK = 1 / 8
# Blocks between two times that the driver takes the hidden states and puts them anew.
RENEWED = 8


@dataclasses.dataclass(frozen=True)
class Run:
    """What is pruned, and with what.

    Attributes:
        refined: epochs of refinement.
        shards:  of the samples, on Ray.
        strips:  of rows of a Gram matrix, at most; each is added by a task of its own, on Ray.
        spread:  nodes that have pulled a Gram matrix pass it on; else all pull it from where it was made.
    """

    model: object
    node: object
    link: float
    sequences: int = 128
    tokens: int = 2048
    refined: int = 0
    shards: int = 16
    strips: int = 16
    spread: bool = False

    @property
    def hidden(self):
        """Bytes of the hidden states of all sequences."""
        return self.sequences * self.tokens * self.model.width * BFLOAT16

    def forward(self, sequences):
        return sequences * self.model.forward_operations(self.tokens) / self.node.forward

    def gram(self, sequences, names):
        return sequences * self.model.gram_operations(self.tokens, names) / self.node.gram

    def solve(self, rows, columns):
        return self.node.overhead + rows * columns**2 * self.node.solve

    def step(self):
        """Seconds of one step of refinement, which sees one sequence."""
        return 3 * self.model.forward_operations(self.tokens) / self.node.step

    def refinement(self):
        """Seconds of a block: a sixteenth of the sequences is held back and judges before and after."""
        held = max(1, self.sequences // 16)
        steps = self.refined * (self.sequences - held)
        return steps * self.step() + (self.refined + 1) * self.forward(held) if self.refined else 0.0


class Job(typing.NamedTuple):
    gram: str
    matrix: int  # its number in the block
    rows: int
    columns: int


class Clock:
    """The time, and what it went to."""

    def __init__(self):
        self.now, self.phases = 0.0, collections.Counter()

    def until(self, time, phase):
        self.phases[phase] += time - self.now
        self.now = time


def passes(model):
    """Names of the Gram matrices whose float64 sums fit into the memory together, pass by pass."""
    found, used = [], GRAM_MEMORY
    for name, size in model.gram_bytes(FLOAT64).items():
        if used + size > GRAM_MEMORY:
            found.append([])
            used = 0
        found[-1].append(name)
        used += size
    return found


def by_shape(rows, columns):
    """Parts of a matrix, whatever the nodes are."""
    return math.ceil(rows * columns / SPLIT_ABOVE)


def by_servers(servers):
    """Parts of a matrix with a list of servers, as it was."""
    return lambda rows, columns: servers if rows * columns > SPLIT_ABOVE else 1


def jobs_of(model, names, parts):
    """Every job, the longest first."""
    found = []
    for number, (gram, rows, columns) in enumerate(model.matrices):
        count = min(rows, parts(rows, columns)) if gram in names else 0
        found += [
            Job(gram, number, rows * (part + 1) // count - rows * part // count, columns)
            for part in range(count)
        ]
    return sorted(found, key=lambda job: -job.rows * job.columns**2)


def block_of_list(run, nodes, parts):
    """A list of servers, one a node. The client alone runs the model, and sends every Gram matrix to every
    server, one after the other. Returns seconds by phase."""
    network, clock = Network(nodes, run.link), Clock()
    for names in passes(run.model):
        clock.until(clock.now + run.forward(run.sequences) + run.gram(run.sequences, names), "passes")
        time = clock.now
        for name in names:
            size = run.model.gram_bytes(FLOAT32)[name]
            for node in range(nodes):
                # The server stores what it gets, slower than some links carry it.
                time = max(network.send(0, node, size, time), time + size / run.node.receive)
        clock.until(time, "Gram matrices")
        clock.until(solve_on_list(run, network, nodes, jobs_of(run.model, names, parts), clock.now), "jobs")
    if run.refined:
        clock.until(clock.now + run.forward(run.sequences) + run.refinement(), "refinement")
    clock.until(clock.now + run.forward(run.sequences), "passes")
    return clock.phases


def solve_on_list(run, network, nodes, jobs, now):
    """A job is on the server that had the least to do when it was submitted."""
    load, free, last = [0.0] * nodes, [now] * nodes, now
    for job in jobs:
        node = min(range(nodes), key=load.__getitem__)
        load[node] += job.rows * job.columns**2
        there = network.send(0, node, job.rows * job.columns * BFLOAT16, now)
        free[node] = max(free[node], there) + run.solve(job.rows, job.columns)
        last = max(last, free[node])
    return last


def block_of_ray(run, nodes):
    """Ray: shards of the samples on the nodes, partial sums added in the order of shards, Gram matrices from
    node to node, jobs by shape. Returns seconds by phase."""
    network, clock = Network(nodes, run.link), Clock()
    homes = [shard * min(nodes, run.shards) // run.shards for shard in range(run.shards)]

    def to_nodes(size):
        return max(network.send(0, node, size, clock.now) for node in sorted(set(homes)))

    def through(names):
        """The shards of a pass; each node has its own, one after the other."""
        one = run.sequences / run.shards
        return clock.now + max(map(homes.count, homes)) * (run.forward(one) + run.gram(one, names))

    clock.until(to_nodes(run.model.weights * BFLOAT16), "blocks to nodes")
    for names in passes(run.model):
        clock.until(through(names), "passes")
        makers = {name: add_partials(run, network, homes, name, clock.now) for name in names}
        clock.until(max(there for strips in makers.values() for _, _, there in strips), "Gram sums")
        clock.until(solve_on_ray(run, network, nodes, homes, names, makers, clock.now), "jobs")
    if run.refined:
        clock.until(through(()), "refinement")
        # Inputs and targets to the one node that takes the steps; node 0 stands for any.
        of_shard = 2 * run.hidden / run.shards
        clock.until(max(network.send(home, 0, of_shard, clock.now) for home in homes), "refinement")
        clock.until(clock.now + run.refinement(), "refinement")
    clock.until(to_nodes(run.model.weights * (BFLOAT16 if run.refined else MASK)), "blocks to nodes")
    clock.until(through(()), "passes")
    clock.until(clock.now + 2 * run.hidden * (1 - 1 / nodes) / run.link / RENEWED, "hidden states anew")
    return clock.phases


def add_partials(run, network, homes, name, now):
    """Adds the partial sums of a Gram matrix in the order of shards: [(node, float32 bytes, since when)]."""
    size = run.model.gram_bytes(FLOAT32)[name]
    first = list(run.model.gram_bytes(FLOAT32)).index(name)
    found = []
    strips = min(run.strips, max(1, size // STRIP_BYTES))
    for strip in range(strips):
        home = homes[(first + strip) % len(homes)]
        there = max(network.send(node, home, size / strips, now) for node in homes)
        found.append((home, size / strips, there))
    return found


def solve_on_ray(run, network, nodes, homes, names, makers, now):
    """Idle workers take the next job, the longest first. Nodes with samples have the block already."""
    has = {}  # (node, Gram matrix) -> since when
    weights = {}  # (node, matrix) -> since when

    def nearest(node, gram, strip, time):
        """Where a strip is that can be sent soonest, and since when."""
        home, _, since = strip
        places = [(home, since)]
        if run.spread:
            places += [(other, when) for (other, name), when in has.items() if name == gram and other != node]
        return min(places, key=lambda place: max(place[1], time, network.idle(place[0])))

    def pull(node, gram, time):
        """When the node's own server has the Gram matrix."""
        if (node, gram) not in has:
            there = time
            for strip in makers[gram]:
                place, since = nearest(node, gram, strip, time)
                there = max(there, network.send(place, node, strip[1], max(since, time)))
            has[node, gram] = there + sum(size for _, size, _ in makers[gram]) / run.node.receive
        return has[node, gram]

    def pull_weight(node, job, time):
        if (node, job.matrix) not in weights:
            _, rows, columns = run.model.matrices[job.matrix]
            size = 0 if node in homes else rows * columns * BFLOAT16
            weights[node, job.matrix] = network.send(0, node, size, time)
        return weights[node, job.matrix]

    def start(node, job, time):
        begin = max(time, pull(node, job.gram, time), pull_weight(node, job, time))
        return begin + run.solve(job.rows, job.columns)

    def end(node, job, time):
        return network.send(node, 0, job.rows * job.columns * MASK, time)

    return take_in_turn([now] * nodes, jobs_of(run.model, names, by_shape), start, end)


WAYS = {
    "list of servers, parts by servers": lambda run, nodes: block_of_list(run, nodes, by_servers(nodes)),
    "list of servers": lambda run, nodes: block_of_list(run, nodes, by_shape),
    "Ray": block_of_ray,
}
