"""From GitHub's Markdown to Python-Markdown's: what is in a list item is indented by four columns there, and a
list needs an empty line before it."""

import html
import re

FENCE = re.compile(r"^( *)(```+|~~~+)")
# Code in a table in which \| stands for a bar.
BARS = re.compile(r"`([^`|]*(?:\\\|[^`|]*)+)`")
ITEM = re.compile(r"^( *)([-*+]|\d+\.)( +)")


def parts(text):
    """(whether it is fenced code, lines) in turn."""
    found, lines, fence = [], [], None
    for line in text.split("\n"):
        match = FENCE.match(line)
        if fence is None and match:
            found.append((False, lines))
            lines, fence = [line], match[2]
        elif fence and line.strip() == fence:
            found.append((True, [*lines, line]))
            lines, fence = [], None
        else:
            lines.append(line)
    return [*found, (fence is not None, lines)]


def outside_code(change, text):
    """`text` with every part outside of fenced code changed."""
    return "\n".join("\n".join(lines) if code else change("\n".join(lines)) for code, lines in parts(text))


def without_code(text):
    return "\n".join("\n".join(lines) for code, lines in parts(text) if not code)


def for_python_markdown(text):
    out, stack = [], []  # columns at which the text of the open items begins
    blank = True
    for code, lines in parts(text):
        if code:
            depth, indent = depth_of(stack, lines[0])
            if not blank:
                out.append("")
            out += [" " * 4 * depth + line[indent:] if line.strip() else "" for line in lines]
            blank = False
            continue
        for line in lines:
            if not line.strip():
                out.append("")
                blank = True
                continue
            if line.lstrip().startswith("|"):
                line = BARS.sub(as_html, line)
            item = ITEM.match(line)
            if item and (stack or blank or item[2] in "-*+" or item[2] == "1."):
                while stack and stack[-1] > len(item[1]):
                    stack.pop()
                if not stack and not blank and out and not out[-1].startswith("|"):
                    out.append("")
                out.append(" " * 4 * len(stack) + f"{item[2]} {line[item.end():]}")
                stack.append(item.end())
            elif blank:
                depth, indent = depth_of(stack, line)
                out.append(" " * 4 * depth + line[indent:])
            else:
                out.append(" " * 4 * len(stack) + line.lstrip() if stack else line)
            blank = False
    return "\n".join(out)


def depth_of(stack, line):
    """In how many items a line is that follows an empty one, and the columns that belong to them; closes others."""
    indent = len(line) - len(line.lstrip())
    while stack and stack[-1] > indent:
        stack.pop()
    return len(stack), stack[-1] if stack else 0


def as_html(match):
    return "<code>" + html.escape(match[1].replace("\\|", "|")).replace("|", "&#124;") + "</code>"
