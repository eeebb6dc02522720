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
    part.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    os.replace(part, path)


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
