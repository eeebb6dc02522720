"""The short table at the end of a check."""
MARKS = {"passed": "passed", "failed": "FAILED", "skipped": "skipped"}


def table(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
                     for row in rows)


def machine_lines(machine):
    host, gpu = machine["host"], machine["gpu"]
    lines = []
    if gpu:
        lines += [f"GPU     {device['name']}, {device['memory_bytes'] / 2**30:.0f} GiB, compute "
                  f"capability {device['capability']}" for device in gpu["devices"]]
        lines.append(f"driver  {gpu['driver']}, CUDA {gpu['cuda']}; toolkit: {gpu['toolkit']}")
    lines.append(f"host    {host['processor']}, {host['cores']} cores, {host['system']}, glibc "
                 f"{host['glibc']}")
    return lines


def _figure(value):
    return "-" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


def text(result):
    parts = []
    if not result["gpu_result"]:
        parts.append(f"NOT A GPU RESULT: the steps ran on the backend \"{result['device']}\" to "
                     "test the check itself.")
    goals = (result["figures"] or {}).get("goals", [])
    if goals:
        verdicts = {True: "met", False: "not met", None: "-"}
        parts.append(table([["what", "where", "goal", "value", "", "note"]] + [
            [goal["what"], goal["where"], goal["wanted"], _figure(goal["value"]),
             verdicts[goal["met"]], goal["note"][:80]] for goal in goals]))
        parts.append("Goals are those of one H200; one that is not met fails no check.\n")
    parts.append(table([["step", "outcome", "seconds", ""]] + [
        [step["name"], MARKS[step["outcome"]], str(step["seconds"]), step["detail"][:200]]
        for step in result["steps"]]))
    verdict = "passed" if result["passed"] else "FAILED"
    parts.append(f"\ngpu-check {verdict} after {result['seconds']} s, commit {result['commit']}")
    return "\n".join(parts)
