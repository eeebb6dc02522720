"""The end of a check's output: in so little text that whoever keeps only that knows the most."""
from gpu import goals
from harness.tables import number

LIMIT_BYTES = 4000
FAILURE_BYTES = 260  # of one failure
FAILURES_BYTES = 1900  # of all of them


def failures(result):
    return [f"{step['name']}: {one['item']}: {one['detail']}" for step in result["steps"]
            for one in step["items"] if one["ok"] is False]


def _short(text, limit):
    text = " ".join(text.split())
    return text if len(text.encode()) <= limit else \
        text.encode()[:limit - 4].decode(errors="ignore") + " ..."


def _failure_lines(result):
    lines, used, found = [], 0, failures(result)
    for one in found:
        line = "  " + _short(one, FAILURE_BYTES)
        used += len(line.encode()) + 1
        if used > FAILURES_BYTES:
            return [*lines, f"  and {len(found) - len(lines)} more, in gpu-check.json"]
        lines.append(line)
    return lines


def _step_lines(result):
    lines = []
    for step in result["steps"]:
        counts = [sum(one["ok"] is ok for one in step["items"]) for ok in (True, False)]
        lines.append(f"  {step['name']:<10} {step['outcome']:<7} {step['seconds']:>6} s  "
                     f"{counts[0]} ok, {counts[1]} failed")
    return lines


def _figure_lines(figures):
    lines = []
    for case in goals.select(figures.get("goal", {"cases": []}), measure="iterations"):
        seconds, count = goals.per_iteration(case)
        if seconds is None:
            continue
        peers = [f"{goals.against_peer(case, which)[0]:.1f}x PyTorch {which}"
                 for which in ("fp32", "tf32") if goals.against_peer(case, which)]
        lines.append(f"  {case['rows']}x{case['cols']} {case['pattern']} {case['precision']}: "
                     f"{seconds * 1e3:.3g} ms an iteration over {count} {', '.join(peers)}")
    forms = {}
    for case in goals.select(figures.get("goal", {"cases": []}), measure="forms"):
        seconds, _ = goals.per_iteration(case)
        key = f"{case['pattern']} alpha {case['alpha']:g}"
        if seconds is not None:
            forms.setdefault(key, []).append(
                f"{case['form']} {case['precision']} {seconds * 1e3:.3g}")
    lines += [f"  ms, {key}: {', '.join(found)}" for key, found in forms.items()]
    for name in ("goal", "rest"):
        lines += [f"  {goal['what']}, {goal['where']}: {number(goal['value'])} "
                  f"({goal['wanted']})" for goal in figures.get(name, {}).get("goals", [])
                  if goal["met"] is False][:6]
    return lines


def text(result, figures):
    """At most LIMIT_BYTES: what failed, the parts, then figures as far as they fit."""
    verdict = "passed" if result["passed"] else "FAILED"
    lines = [f"==== gpu-check {verdict} after {result['seconds']} s, commit {result['commit']}",
             f"device {_short(result['machine'].get('device', 'unknown'), 200)}"]
    if not result["gpu_result"]:
        lines.append(f"NOT A GPU RESULT: ran on \"{result['device']}\", and no GPU answered")
    wrong = _failure_lines(result)
    lines += (["what failed:", *wrong] if wrong else []) + ["parts:", *_step_lines(result)]
    used = sum(len(line.encode()) + 1 for line in lines)
    kept = []
    for line in _figure_lines(figures):
        line = _short(line, FAILURE_BYTES)
        used += len(line.encode()) + 1
        if used > LIMIT_BYTES - 40:
            break
        kept.append("  " + line)
        used += 2
    return "\n".join([*lines, *(["figures:"] if kept else []), *kept])
