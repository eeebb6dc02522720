"""What script/reproduce writes into docs/results.md, from runs made up here."""
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "client/python/benchmarks/reproduce"))

import tables  # noqa: E402


def run(first, second, final=2.0):
    """Perplexities of the two texts; one layer."""
    losses = {"full": 100.0, "warm_start": 4.0, "final": final, "lower_bound": 1.0, "reconstructed": None}
    return {"perplexity": {"one": {"value": first}, "two": {"value": second}}, "options": {},
            "layers": [{"name": "block.q_proj.weight", "losses": losses, "seconds": 1.5}]}


RUNS = {"dense": run(5, 6), "2:4, Wanda": run(9, 9), "2:4, RIA": run(8, 10),
        "2:4, SparseFW (Wanda)": run(7, 9.5)}


def test_methods_by_pattern():
    lines = tables.table1({**RUNS, "60 % per-row, Wanda": run(20, 30)}).splitlines()
    assert lines[0] == "| perplexity: one / two | 60 % per-row | 2:4 |"
    assert lines[2] == "| dense | 5.00 / 6.00 | 5.00 / 6.00 |"
    assert "| Wanda | 20.00 / 30.00 | 9.00 / 9.00 |" in lines
    assert "| RIA | - | 8.00 / 10.00 |" in lines
    assert "| SparseFW (Wanda) | 2.00%, 50% |" in tables.table_losses(RUNS)
    assert "| 2:4, SparseFW (Wanda) | 50% |" in tables.reductions(RUNS)


def test_where_sparsefw_is_not_below_is_said():
    text = tables.below(RUNS)
    assert "in 1 of 2 comparisons" in text
    assert text.endswith("Not below: 2:4, SparseFW (Wanda), two: 9.50 against 9.00 of Wanda.")
    assert "in all 2 comparisons" in tables.below({**RUNS, "2:4, SparseFW (Wanda)": run(7, 8)})


def test_the_page_keeps_everything_around_its_markers():
    page = "before\n<!-- runs:begin -->\nold\n<!-- runs:end -->\nafter\n"
    assert tables.paste(page, "new") == page.replace("old", "new")
    for wrong in ("before", page + page, "<!-- runs:end --><!-- runs:begin -->"):
        with pytest.raises(ValueError, match="must hold"):
            tables.paste(wrong, "new")
