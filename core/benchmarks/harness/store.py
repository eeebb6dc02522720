"""Results as JSON files: written whole or not at all, their form checked."""
import json
import os
from pathlib import Path


class SchemaError(ValueError):
    pass


def write(path, value):
    """A reader, or a kill, sees the old file or the new one."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(text(value) + "\n", encoding="utf-8")
    os.replace(part, path)


def text(value, depth=0):
    """JSON with a line for every element of a list, and for every key of what is around: a run has thousands of
    figures, and a difference of two files is read by rows.
    """
    if not isinstance(value, (dict, list)) or not value:
        return json.dumps(value)
    nested = value.values() if isinstance(value, dict) else value
    if depth and not any(isinstance(one, (dict, list)) for one in nested):
        return json.dumps(value)
    pad, end = "\n" + " " * (depth + 1), "\n" + " " * depth
    if isinstance(value, list):
        return "[" + ",".join(pad + json.dumps(one) for one in value) + end + "]"
    lines = (f"{pad}{json.dumps(key)}: {text(one, depth + 1)}" for key, one in value.items())
    return "{" + ",".join(lines) + end + "}"


def read(path):
    return json.loads(Path(path).read_text(encoding="utf-8"))


def require(value, keys, where):
    """Raises SchemaError unless `value` has the keys with values of these types."""
    for key, kinds in keys.items():
        if key not in value:
            raise SchemaError(f"{where} has no {key}")
        wrong_bool = isinstance(value[key], bool) and kinds is not bool
        if wrong_bool or not isinstance(value[key], kinds):
            raise SchemaError(f"{where}.{key} has the wrong type: {value[key]!r}")
