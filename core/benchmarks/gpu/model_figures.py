"""What the jobs of a model tell: arithmetic alone."""
import statistics


def wall_seconds(case):
    """From the first job's start to the last one's end; None where none ended."""
    return max((job["ended"] for job in case["jobs"]), default=None)


def jobs_per_minute(case):
    wall = wall_seconds(case)
    return 60 * len(case["jobs"]) / wall if wall else None


def by_layer(case):
    """{layer: {"rows", "cols", "jobs", and (median, least, most) of "run", "solve", "queue",
    "iterations"}}, in the order of a block."""
    found = {}
    for job in sorted(case["jobs"], key=lambda job: job["block"]):
        found.setdefault(job["layer"], []).append(job)
    return {layer: {"rows": jobs[0]["rows"], "cols": jobs[0]["cols"], "jobs": len(jobs),
                    **{key: _spread([job[field] for job in jobs]) for key, field in (
                        ("run", "run_seconds"), ("solve", "solve_seconds"),
                        ("queue", "queue_seconds"), ("iterations", "iterations"))}}
            for layer, jobs in found.items()}


def _spread(values):
    return statistics.median(values), min(values), max(values)


def whole_seconds(case, layers_per_block, blocks):
    """(seconds for `blocks` blocks, jobs that were run for it); None where a kind of layer has not
    ended. All of them: as they were. Else the wall time of those that ended, by how much more work
    all are, where a job's work is the mean time that one of its kind ran. Streams that worked on
    jobs that did not end, and those idle while the last ones ended, make it too large, not too
    small."""
    times = {}
    for job in case["jobs"]:
        times.setdefault(job["layer"], []).append(job["run_seconds"])
    if set(times) != set(layers_per_block):
        return None, len(case["jobs"])
    wall = wall_seconds(case)
    if not case["unfinished"] and case["blocks"] == blocks:
        return wall, len(case["jobs"])
    done = sum(sum(seconds) for seconds in times.values())
    every = sum(statistics.fmean(seconds) * blocks for seconds in times.values())
    return wall * every / done if done else None, len(case["jobs"])


def is_whole(case, blocks):
    return not case["unfinished"] and case["blocks"] == blocks
