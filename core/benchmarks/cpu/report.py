"""The results as text: for the terminal, for docs/benchmarks.md and for docs/goals.md."""
from cpu import goals as arithmetic
from cpu import joint, methods
from harness import tables

QUIET_SHARE = 0.1  # of all cores in use by others, above which figures are marked as disturbed


def iteration_table(results):
    """Milliseconds for one iteration, every cell of the grid."""
    cells = results.get("iterations", [])
    peers = {_key(cell): cell for cell in results.get("peer", [])}
    head = ["layer", "pattern", "α", "threads", "engine", "over", "changed", "floor", "PyTorch",
            "PyTorch / engine"]
    rows = []
    for cell in cells:
        count = arithmetic.last_mark(cell)
        mark = arithmetic.at_mark(cell, count)
        peer = peers.get(_key(cell))
        ratio = arithmetic.compare_with_peer(peer, cell)[0] if peer else None
        slow = peer["seconds_after"][-1] / peer["iterations"] if peer else None
        rows.append([f"{cell['rows']}x{cell['cols']}", cell["pattern"], f"{cell['alpha']:g}",
                     cell["threads"], _ms(mark["seconds"] / count), count,
                     f"{mark['toggled_per_iteration'] / (cell['rows'] * cell['cols']):.2%}",
                     _ms(_floor(results, cell)), _ms(slow),
                     "–" if ratio is None else f"{ratio:.1f}x"])
    return tables.table(head, rows, markdown=True)


def _key(cell):
    return tuple(cell[key] for key in ("rows", "cols", "pattern", "alpha", "threads"))


def _ms(seconds):
    return "–" if seconds is None else f"{seconds * 1e3:.3g}"


def _floor(results, cell):
    ceiling = arithmetic.find(results.get("ceilings"), threads=cell["threads"])
    if ceiling is None:
        return None
    bandwidth = ("l2_triad_bytes_per_second" if cell["pattern"] == "per_row"
                 else "triad_bytes_per_second")
    return arithmetic.floor_factor(cell, ceiling, bandwidth)[1]


def heading(results):
    machine = results["machine"]
    load = machine["load_average_at_start"][0]
    lines = [f"{results['date']}, commit {results['commit']}, plan {results['plan']}: "
             f"{machine['processor']}, {machine['cores']} core" + "s" * (machine["cores"] > 1) +
             f", {machine['system']}, {machine['compiler']}, load average {load:.2f} at the start."]
    busy = max(machine["busy_at_start"], machine.get("busy_at_end", 0))
    if busy > QUIET_SHARE:
        lines.append(f"THE MACHINE WAS NOT QUIET: other work used {busy:.0%} of the cores at the "
                     "start or the end and disturbed these figures.")
    for ceiling in results.get("ceilings", []):
        lines.append(
            f"Ceilings, {ceiling['threads']} thread" + "s" * (ceiling["threads"] > 1) +
            f": SGEMM {ceiling['sgemm_flops_per_second'] / 1e9:.0f} GFLOP/s, "
            f"triad {ceiling['triad_bytes_per_second'] / 1e9:.1f} GB/s, "
            f"triad in L2 {ceiling['l2_triad_bytes_per_second'] / 1e9:.0f} GB/s.")
    if results.get("ceilings"):
        lines.append(f"BLAS of the engine: {results['ceilings'][0]['blas']}.")
    peer = results.get("peer_description")
    if peer:
        lines.append(f"Peer: PyTorch {peer['torch']} from {peer['source']}, with {peer['blas']}.")
    if results.get("peer_skipped"):
        lines.append(f"Peer SKIPPED: {results['peer_skipped']}.")
    return "\n\n".join(lines)


def text(results):
    return "\n\n".join((heading(results), goals(results), *measured(results)))


def goals(results):
    return tables.goal_table(results["goals"], markdown=True)


def measured(results):
    """The tables of what was measured, for those sections that ran."""
    parts = []
    if results.get("iterations"):
        parts.append("Milliseconds for one iteration:\n\n" + iteration_table(results))
    if results.get("joint"):
        parts.append("New weights, loss and seconds:\n\n" + joint.table(results))
    if results.get("methods"):
        parts.append(methods_text(results))
    return parts


def methods_text(results):
    first = results["methods"][0]
    return (f"Every method on one layer, {first['layer']}, {first['pattern']} 60 %, loss in per "
            f"cent of pruning everything:\n\n{methods.table(results)}")


def between(page, name, text):
    """`page` with everything between the markers of that name replaced."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise ValueError(f"the page must hold {begin} and {end}, once each, in this order")
    before, rest = page.split(begin)
    return f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}"


def paste(page, results, links):
    """docs/benchmarks.md with the results of a full run; its goals stand in docs/goals.md."""
    return between(page, "bench", "\n\n".join((links, heading(results), *measured(results))))


def paste_goals(page, results, link):
    """docs/goals.md with the goals of a full run."""
    return between(page, "goals", f"{link}\n\n{goals(results)}")
