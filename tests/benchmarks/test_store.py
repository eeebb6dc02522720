"""How results are written."""
import json

import pytest

from harness import store


@pytest.mark.parametrize("value", [
    {}, [], {"a": 1}, {"a": {"b": [1, 2], "c": {}}, "d": [{"e": [1]}, {"f": {"g": None}}], "h": []}, "text"])
def test_what_is_written_is_read(tmp_path, value):
    store.write(tmp_path / "results.json", value)
    assert store.read(tmp_path / "results.json") == value


def test_an_element_of_a_list_is_one_line(tmp_path):
    rows = [{"row": index, "values": {"seconds": index / 3, "spread": [1, 2]}} for index in range(100)]
    store.write(tmp_path / "results.json", {"machine": {"cores": 2}, "rows": rows})
    lines = (tmp_path / "results.json").read_text().splitlines()
    assert len(lines) == 100 + 5
    assert json.loads(lines[3].rstrip(",")) == rows[0]
