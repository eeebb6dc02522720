"""The kept file of script/reproduce trials, and the tables that docs/results.md has of it."""
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT / "client/python/benchmarks/reproduce"))

import tables  # noqa: E402
import trials_settings  # noqa: E402
import trials_tables  # noqa: E402

KEPT = ROOT / "docs/benchmarks/2026-11-29-smollm2-trials.json"


def test_the_page_has_the_tables_of_the_kept_runs(tmp_path):
    runs = trials_tables.read(KEPT)
    page = (ROOT / "docs/results.md").read_text()
    (tmp_path / "page.md").write_text(page)
    found = trials_tables.parts(runs)
    assert found.keys() == {"trials-refinement", "trials-permutation"}
    tables.fill(tmp_path / "page.md", found)
    assert (tmp_path / "page.md").read_text() == page


def test_rows_are_compared_with_the_row_that_the_settings_name():
    runs = trials_tables.read(KEPT)
    for group, trials in trials_settings.GROUPS.items():
        lines = trials_tables.table(runs, group).splitlines()
        first = next(iter(trials))
        assert lines[2].startswith(f"| {first} |")
        assert all(len(line.split(" | ")) == 7 for line in lines)
        for name, trial in trials.items():
            if name in runs and trial["base"]:
                (line,) = (one for one in lines if one.startswith((f"| {name} |", f"| {name} (")))
                difference = tables.against(runs[name], runs[trial["base"]], "unused")
                assert line.split(" | ")[2] == difference


def test_a_run_with_another_meaning_counts_for_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(trials_settings, "BLOCKS", 3)
    assert list(trials_tables.read(KEPT)) == ["dense"]
    assert trials_tables.read(tmp_path / "none.json") == {}
