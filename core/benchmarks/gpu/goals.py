"""What was measured, held against the goals of a GPU. Goals are those of one H200."""
import statistics

from gpu import cases, model_figures
from harness.tables import goal

GOAL = {"pattern": "unstructured:0.6", "alpha": 0.9, "rule": "open-loop", "layer": None}
LOSS_TOLERANCE = 1e-4  # a goal
LOSS_LIMIT = 1e-2  # beyond it one of the two is wrong


def seconds_after(case, iterations):
    """The engine's seconds, the median over its runs; None where no run got there."""
    found = [mark["seconds"] for run in case["runs"] for mark in run
             if mark["iterations"] == iterations]
    return statistics.median(found) if found else None


def last_mark(case):
    """The last mark that every run reached."""
    reached = set.intersection(*({mark["iterations"] for mark in run} for run in case["runs"]))
    return max(reached) if reached else None


def per_iteration(case):
    """(seconds, over how many): differences of two marks, so that what is done once per call of
    Step is left out; over all iterations where there is one mark only."""
    last = last_mark(case)
    if last is None:
        return None, 0
    first = min(mark["iterations"] for mark in case["runs"][0])
    if first == last:
        return seconds_after(case, last) / last, last
    return (seconds_after(case, last) - seconds_after(case, first)) / (last - first), last


def against_peer(case, which):
    """(ratio of times, difference of losses, iterations) over the iterations both ran."""
    answer = case.get("peer", {}).get(which)
    if answer is None or "error" in answer:
        return None
    count = answer["iterations"]
    ours = seconds_after(case, count)
    if not ours:
        return None
    loss = next(mark["relaxed_loss"] for mark in case["runs"][0] if mark["iterations"] == count)
    return (answer["seconds_after"][-1] / ours, abs(loss / answer["relaxed_loss"] - 1), count)


def select(results, **wanted):
    return [case for case in results["cases"] if "error" not in case
            and all(case.get(key) == value for key, value in wanted.items())]


def _headline(results, shape):
    where, goals = "x".join(map(str, shape)), []
    for precision in ("fp32", "tf32", "bf16"):
        found = select(results, measure="iterations", rows=shape[0], cols=shape[1],
                       precision=precision, **GOAL)
        case = max(found, key=lambda one: last_mark(one) or 0, default=None)
        seconds, count = per_iteration(case) if case else (None, 0)
        total = seconds_after(case, 2000) if case else None
        at = f"{where}, {precision}"
        goals.append(goal("one iteration", at, "<= 0.25 ms",
                          seconds and seconds * 1e3, seconds is not None and seconds <= 0.25e-3,
                          f"ms, mean of {count}" if case else "not measured"))
        goals.append(goal("2000 iterations", at, "<= 0.5 s", total,
                          total is not None and total <= 0.5,
                          "s" if total else "not that many were run"))
    return goals


def _peers(results):
    goals = []
    for case in select(results, measure="iterations"):
        for which in case.get("peer", {}):
            at = (f"{case['rows']}x{case['cols']}, {case['pattern']}, alpha {case['alpha']:g}, "
                  f"engine {case['precision']}")
            compared = against_peer(case, which)
            if compared is None:
                why = case["peer"][which].get("error", "no iteration that both ran")
                goals.append(goal(f"against PyTorch {which}", at, ">= 15x", None, None, why))
                continue
            ratio, difference, count = compared
            goals.append(goal(f"against PyTorch {which}", at, ">= 15x", ratio, ratio >= 15,
                              f"times faster, the first {count} iterations"))
            if which == "fp32":
                goals.append(goal("relaxed loss as PyTorch's", at, f"to {LOSS_TOLERANCE:g}",
                                  difference, difference <= LOSS_TOLERANCE,
                                  f"relative, after {count}"))
    return goals


def _parallel(results, shape):
    goals = []
    for case in select(results, measure="parallel"):
        large = select(results, measure="iterations", rows=shape[0], cols=shape[1],
                       precision="fp32", **GOAL)
        alone = next((seconds_after(one, case["iterations"]) for one in large), None)
        value = alone / case["together_seconds"] if alone else None
        goals.append(goal(f"{case['engines']} jobs of {case['rows']}x{case['cols']} at once",
                          "x".join(map(str, shape)), ">= 0.9", value,
                          value is not None and value >= 0.9,
                          "of the rate of one job of that size" if value else
                          "the one large job was not measured"))
    return goals


def _gram(results):
    goals, ceilings = [], results.get("ceilings") or {}
    for case in select(results, measure="gram"):
        rate = 2 * case["tokens"] * case["cols"]**2 / case["seconds"]
        ceiling = ceilings.get("gemm_flops_per_second", {}).get(case["dtype"])
        note = f"{rate / 1e12:.3g} TFLOP/s"
        upload = ceilings.get("upload_bytes_per_second", {}).get("pageable")
        if upload:
            size = case["tokens"] * case["cols"] * (4 if case["dtype"] == "fp32" else 2)
            note += f"; upload alone: {size / upload / case['seconds']:.0%} of the time"
        goals.append(goal(f"Gram sum of {case['dtype']}, of the GEMM rate",
                          f"{case['tokens']} tokens of {case['cols']}", ">= 70%",
                          rate / ceiling if ceiling else None,
                          ceiling is not None and rate >= 0.7 * ceiling,
                          note if ceiling else note + "; no ceiling was measured"))
    return goals


SCHEDULE_NAMES = {"paper": "2000 iterations each", "gap": "line search, gap stop at 1 %"}


def _model_through_a_server(case, plan, limit):
    """None where too little ended to tell."""
    total, jobs = model_figures.whole_seconds(case, [name for name, _ in plan.block], cases.BLOCKS)
    if total is None:
        return None
    layers = cases.BLOCKS * len(plan.block)
    how = "s through a server, " + (
        f"all {layers} solved" if model_figures.is_whole(case, cases.BLOCKS) else
        f"EXTRAPOLATED from {jobs} jobs") + f", {case['slots']} at once"
    return goal(f"all {layers} linear layers, {SCHEDULE_NAMES[case['schedule']]}", "synthetic",
                f"<= {limit} s", total, total <= limit, how)


def _model(results, plan):
    goals = []
    # On all schedules if nothing else is measured (cases.model_cases).
    schedules = cases.MODEL_SCHEDULES if results.get("only_model") else plan.model_schedules
    for schedule, limit in (("paper", 300), ("gap", 60)):
        if schedule not in schedules:
            continue
        served = [_model_through_a_server(case, plan, limit)
                  for case in select(results, measure="model", schedule=schedule)]
        found = [one for one in served if one]
        if not found:
            why = "too few of its jobs ended in time" if served else "it was not measured"
            found = [goal(f"all linear layers, {SCHEDULE_NAMES[schedule]}", plan.name,
                          f"<= {limit} s", None, None, why)]
        goals += found
    return goals


def all_goals(results, plan):
    if results.get("only_model"):
        return _model(results, plan)
    return [*_headline(results, plan.goal_shape), *_peers(results),
            *_parallel(results, plan.goal_shape), *_gram(results), *_model(results, plan)]


def failures(results):
    """What makes a run a failed one: errors, figures that are wrong, a headline that is missing.
    A goal that is not met is none: goals are those of one card."""
    wrong = [f"{case['measure']} {case.get('schedule', '')}: {case['error']}"
             if case["measure"] == "model" else
             f"{case['measure']} {case.get('rows', '')}x{case.get('cols', '')} "
             f"{case.get('pattern', case.get('dtype', ''))}: {case['error']}"
             for case in results["cases"] if "error" in case]
    for case in results["cases"]:
        for which, answer in case.get("peer", {}).items():
            if "error" in answer:
                wrong.append(f"PyTorch {which} beside {case['pattern']}: {answer['error']}")
            elif which == "fp32" and "error" not in case:
                compared = against_peer(case, which)
                if compared and not compared[1] <= LOSS_LIMIT:
                    wrong.append(f"relaxed loss of {case['pattern']} alpha {case['alpha']:g} is "
                                 f"{compared[1]:.2g} off PyTorch's")
        if case["measure"] == "gram" and not case.get("relative_error", 0) <= 1e-2:
            wrong.append(f"Gram sum of {case['dtype']} is {case['relative_error']:.2g} off")
    wrong += [f"model {case['schedule']}: no job ended in {case['seconds']:.0f} s"
              for case in select(results, measure="model") if not case["jobs"]]
    wrong += [f"{case['capture_failures']} captures of the iteration failed: {case['measure']} "
              f"{case.get('pattern', '')}"
              for case in results["cases"] if case.get("capture_failures")]
    if not results.get("only_model") and not select(results, measure="iterations"):
        wrong.append("no iteration was measured")
    return wrong
