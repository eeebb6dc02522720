"""Goals, and tables for people: aligned text and Markdown."""


def goal(what, where, wanted, value, met, note="", against=""):
    """A line of the goals. value: None when it could not be formed, which the note explains; met:
    None likewise, and where a line is for comparison only."""
    return {"what": what, "where": where, "against": against, "wanted": wanted, "value": value,
            "met": None if value is None or met is None else bool(met), "note": note}


def verdict(line):
    return {True: "met", False: "not met", None: "–"}[line["met"]]


def number(value):
    if not isinstance(value, float):
        return "–" if value is None else str(value)
    return f"{value:.1e}" if 0 < abs(value) < 0.001 else f"{value:.3g}"


def table(head, rows, indent="", markdown=False):
    """Columns are aligned, so that a Markdown table reads well as text too."""
    cells = [[str(cell) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths)] for row in cells]
    if markdown:
        lines = ["| " + " | ".join(row) + " |" for row in padded]
        lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    else:
        lines = ["  ".join(row).rstrip() for row in padded]
        lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(indent + line for line in lines)


def goal_table(goals, markdown=False):
    """Without the column "against" where no goal has it."""
    keys = ["what", "where", "against", "wanted"]
    if not any(line.get("against") for line in goals):
        keys.remove("against")
    rows = [[*(line[key] for key in keys), number(line["value"]), verdict(line), line["note"]]
            for line in goals]
    return table([{"wanted": "goal"}.get(key, key) for key in keys] + ["value", "", "note"], rows,
                 markdown=markdown)
