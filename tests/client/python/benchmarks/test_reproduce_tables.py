"""What script/reproduce writes into docs/results.md and keeps, from runs made up here."""
import json
import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "client/python/benchmarks/reproduce"))

import kept_runs  # noqa: E402
import settings  # noqa: E402
import tables  # noqa: E402


def run(first, second, final=2.0, commit="abc"):
    """Perplexities of the two texts; one layer."""
    losses = {"full": 100.0, "warm_start": 4.0, "final": final, "lower_bound": 1.0, "reconstructed": None}
    return {"perplexity": {"one": text(first), "two": text(second)}, "options": {}, "commit": commit,
            "processor_seconds": 12.3, "layers": [{"name": "block.q_proj.weight", "losses": losses}]}


def text(value):
    """Windows that differ among each other, but not from those of another run."""
    return {"value": value, "losses": [math.log(value) + window for window in (-0.1, 0, 0.1)],
            "windows_digest": "d", "length": settings.SMALL.sequence_length, "windows": settings.SMALL.windows}


RUNS = {"dense": run(5, 6), "2:4, Wanda": run(9, 9), "2:4, RIA": run(8, 9),
        "2:4, SparseFW (Wanda)": run(7, 9.5)}


def test_methods_by_pattern():
    lines = tables.table_methods({**RUNS, "60 % per-row, Wanda": run(20, 30)}).splitlines()
    assert lines[0] == "| perplexity: one / two | 60 % per-row | 2:4 |"
    assert lines[2] == "| dense | 5.00 / 6.00 | 5.00 / 6.00 |"
    assert "| Wanda | 20.00 / 30.00 | 9.00 / 9.00 |" in lines
    assert "| RIA | - | 8.00 / 9.00 |" in lines
    assert "RIA" not in tables.table_methods(RUNS, ("Wanda",))
    assert "| SparseFW (Wanda) | 2.00%, 50% |" in tables.table_losses(RUNS)
    assert "| 2:4, SparseFW (Wanda) | 50% |" in tables.reductions(RUNS)


def test_a_row_is_compared_with_the_one_above_window_by_window():
    lines = tables.table_pattern(RUNS, "2:4").splitlines()
    assert lines[0].startswith("| 2:4 | one | against the row above | two |")
    assert lines[2] == "| dense | 5.00 |  | 6.00 |  | 12 |"
    assert lines[3] == "| RIA | 8.00 |  | 9.00 |  | 12 |"
    assert lines[4] == ("| Wanda | 9.00 | +12.5 % [+12.5, +12.5] | 9.00 | "
                        "+0.0 % [+0.0, +0.0], no difference | 12 |")
    # One window better, two worse.
    other = {**RUNS["2:4, Wanda"], "name": "other", "perplexity": {"one": {**text(9), "losses": [2.0, 2.3, 2.4]}}}
    there = {**RUNS["2:4, Wanda"], "name": "there"}
    assert "no difference" in tables.against(other, there, "one")
    other["perplexity"]["one"]["windows_digest"] = "e"
    with pytest.raises(ValueError, match="other and there were evaluated on other windows of one"):
        tables.against(other, there, "one")


def test_single_layers_stand_beside_the_first_method():
    scale = settings.LAYERS
    names = list(settings.runs(scale))
    assert len(names) == len(set(names)) == 3 * 3 * 2 + 2 * 2
    assert all("\\.layers\\." in options["ignore"][1] for options in settings.runs(scale).values())
    assert all(options["ignore"] == ["lm_head"] for options in settings.runs(settings.LAYERS_BYTES).values())
    runs = {"dense": run(5, 6), "2 sequences, 2:4, ALPS": run(10, 10), "2 sequences, 2:4, best": run(9, 10),
            "16 sequences, 2:4, best": run(8, 8), "16 sequences, 60 % per-row, ALPS, articles 1": run(10, 10),
            "16 sequences, 60 % per-row, best, articles 1": run(9, 9)}
    assert tables.section(runs, scale).splitlines()[2:] == [
        "| tokens, pattern | method | one | against ALPS | two | against ALPS | processor seconds |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| 1,024, 2:4 | ALPS | 10.00 |  | 10.00 |  | 12 |",
        "| 1,024, 2:4 | best | 9.00 | -10.0 % [-10.0, -10.0] | 10.00 | +0.0 % [+0.0, +0.0], no difference | 12 |",
        "| 8,192, 60 % per-row, articles 1 | ALPS | 10.00 |  | 10.00 |  | 12 |",
        "| 8,192, 60 % per-row, articles 1 | best | 9.00 | -10.0 % [-10.0, -10.0] "
        "| 9.00 | -10.0 % [-10.0, -10.0] | 12 |"]


def test_allocations_stand_beside_the_uniform_one():
    scale = settings.ALLOCATION
    assert settings.runs(scale)["70 % per-row, OWL"] == {
        "pattern": "per-row", "sparsity": 0.7, "preset": "balanced", "allocation": "owl"}
    runs = {"dense": run(5, 6), "70 % per-row, uniform": run(10, 10), "70 % per-row, OWL": run(9, 10)}
    assert tables.section(runs, scale).splitlines()[2:] == [
        "| pattern | allocation | one | against uniform | two | against uniform | processor seconds |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| 70 % per-row | uniform | 10.00 |  | 10.00 |  | 12 |",
        "| 70 % per-row | OWL | 9.00 | -10.0 % [-10.0, -10.0] | 10.00 | +0.0 % [+0.0, +0.0], no difference | 12 |"]


def test_refinement_and_fine_tuning_stand_beside_the_first_of_their_time():
    scale = settings.TRAINING
    long = "60 % per-row, long, "
    both = settings.runs(scale)[f"{long}4 of refinement, 7 of fine-tuning"]
    assert (both["refine_blocks"]["epochs"], both["fine_tune"]["epochs"], both["preset"]) == (4, 7, "fast")
    assert settings.runs(scale)[f"{long}9 of fine-tuning"]["refine_blocks"] is False
    assert "fine_tune" not in settings.runs(scale)[f"{long}16 epochs of refinement"]
    runs = {"dense": run(5, 6), f"{long}16 epochs of refinement": run(10, 10), f"{long}9 of fine-tuning": run(9, 10)}
    assert tables.section(runs, scale).splitlines()[2:] == [
        "| pattern, time | after the masks of `fast` | one | against the first | two | against the first "
        "| processor seconds |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| 60 % per-row, long | 16 epochs of refinement | 10.00 |  | 10.00 |  | 12 |",
        "| 60 % per-row, long | 9 of fine-tuning | 9.00 | -10.0 % [-10.0, -10.0] | 10.00 "
        "| +0.0 % [+0.0, +0.0], no difference | 12 |"]


def test_draws_of_articles_stand_side_by_side():
    name = "60 % per-row, ALPS"
    runs = {**RUNS, name: run(5, 6), f"{name}, articles 1": run(6, 7), f"{name}, articles 2": run(7, 8)}
    assert tables.table_draws(runs).splitlines()[2:] == [
        "| 60 % per-row, ALPS | 5.00 / 6.00 | 6.00 / 7.00 | 7.00 / 8.00 |"]
    assert tables.table_draws(RUNS) == ""


def test_runs_of_other_commits_are_named():
    assert tables.commits(RUNS) == "Every run is of commit abc."
    assert tables.commits({**RUNS, "2:4, ALPS": run(7, 8, commit="def+")}) == (
        "Runs are of commit abc, but for these:\n\n- 2:4, ALPS: def+")


def test_the_page_keeps_everything_around_its_markers():
    page = "before\n<!-- runs:begin -->\nold\n<!-- runs:end -->\nafter\n"
    assert tables.paste(page, "runs", "new") == page.replace("old", "new")
    for wrong in ("before", page + page, "<!-- runs:end --><!-- runs:begin -->"):
        with pytest.raises(ValueError, match="must hold"):
            tables.paste(wrong, "runs", "new")


def test_rows_are_compared_with_a_named_one():
    runs = {**RUNS, "2:4, ALPS": run(10, 10), "2:4, preset fast": run(9, 10), "2:4, preset best": run(8, 10)}
    assert tables.table_against(runs, "ALPS", ("preset fast", "preset best", "RIA, refined")).splitlines()[2:] == [
        "| 2:4, preset fast | -10.0 % [-10.0, -10.0] | +0.0 % [+0.0, +0.0], no difference | 1.00 |",
        "| 2:4, preset best | -20.0 % [-20.0, -20.0] | +0.0 % [+0.0, +0.0], no difference | 1.00 |"]
    assert tables.table_against(RUNS, "ALPS", ("Wanda",)) == tables.table_against(runs, "ALPS", ()) == ""
    assert tables.table_samples({"small": runs}) == ""
    lines = tables.table_samples({"small": runs, "main": {"2:4, preset balanced": run(10, 5)}}).splitlines()
    assert lines[2:] == ["| 2:4 | preset best, 8,192 tokens | preset balanced, 32,768 tokens "
                         "| -20.0 % [-20.0, -20.0] | +100.0 % [+100.0, +100.0] | 1.00 |"]


def test_the_pages_have_what_the_kept_runs_say(tmp_path):
    root = Path(__file__).resolve().parents[4]
    names = ("2026-11-25-smollm2-presets", "2026-11-27-smollm2-layers", "2026-11-28-byte-model")
    tuned = root / "docs/benchmarks/2026-11-29-smollm2-tune.json"
    _, parts = tables.collect(tmp_path, [root / f"docs/benchmarks/{name}.json" for name in names], tuned)
    assert "tune" in parts
    for page in (root / "docs/results.md", root / "README.md"):
        copy = tmp_path / page.name
        copy.write_text(page.read_text().replace("| 21.46", "| 21.40"))  # not what was measured
        tables.fill(copy, parts)
        assert copy.read_text() == page.read_text()


def test_a_page_without_markers_is_an_error(tmp_path):
    (tmp_path / "page.md").write_text("nothing\n")
    with pytest.raises(ValueError, match="markers for none of runs-main"):
        tables.fill(tmp_path / "page.md", {"runs-main": "new"})


def test_a_page_gets_the_tables_that_it_has_markers_for(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- a:begin -->\n<!-- a:end -->\n<!-- c:begin -->\nkept\n<!-- c:end -->\n")
    tables.fill(page, {"a": "new", "b": "nowhere"})
    assert page.read_text() == (
        "<!-- a:begin -->\nnew\n<!-- a:end -->\n<!-- c:begin -->\nkept\n<!-- c:end -->\n")


def pruned(name, options, shares):
    """A run as run.py writes it: a matrix for each of `shares`, with one point along the iterations."""
    losses = {"full": 8.0, "warm_start": 4.0, "relaxed": 2.5, "rounded": 3.0, "final": 3.0,
              "lower_bound": 2.0, "reconstructed": None}
    layers = [
        {"name": f"model.layers.{block}.self_attn.q_proj.weight", "shape": [2, 4], "kept": 4,
         "losses": losses, "seconds": 0.25,
         "trace": [{"iteration": 5, "relaxed_loss": 4 * (1 - share), "rounded_loss": 4 * (1 - share / 2),
                    "threshold_residual": share / 10}]}
        for block, share in enumerate(shares)]
    perplexity = {name: text(9.0) for name in ("wikipedia", "handbook")}
    return {"name": name, "scale": "small", "options": options, "perplexity": perplexity, "layers": layers,
            "dense": [], "curves": None, "out": None, "prune_seconds": 3.0}


def test_kept_runs_are_runs_again(tmp_path):
    name = settings.TRACED
    options = settings.runs(settings.SMALL)[name]
    whole = pruned(name, options, [0.1, 0.2, 0.3])
    first, second = tmp_path / "first", tmp_path / "second"
    kept_runs.write(kept_runs.file_of(first, name, settings.SMALL, options), whole)
    kept_runs.keep(first, tmp_path / "kept.json")
    assert kept_runs.unpack(tmp_path / "kept.json", second, settings.SMALL, {name: options}) == 1
    assert [path.name for path in (second / "runs").iterdir()] == [
        path.name for path in (first / "runs").iterdir()]
    kept_runs.write(kept_runs.file_of(second, "dense", settings.SMALL, {}), RUNS["dense"])
    kept_runs.write(second / "runs/of-an-earlier-version.json", {"name": name})
    again = kept_runs.read(second, [settings.SMALL])["small"][name]
    kept_runs.file_of(second, "dense", settings.SMALL, {}).unlink()
    (second / "runs/of-an-earlier-version.json").unlink()
    assert kept_runs.mean_loss(again) == kept_runs.mean_loss(whole) == 3 / 8
    assert kept_runs.along_iterations(again) == json.loads(json.dumps(kept_runs.along_iterations(whole)))
    assert tables.trace_table(again) == tables.trace_table(whole)
    assert "| 5 | 3 | 20.0% | 10.0% | 0.0200 |" in tables.trace_table(again)
    # What is kept again is the same file.
    kept_runs.keep(second, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == (tmp_path / "kept.json").read_text()


def test_only_kept_runs_with_the_same_options_count(tmp_path):
    name = "2:4, Wanda"
    options = settings.runs(settings.SMALL)[name]
    kept = kept_runs.compact(pruned(name, {**options, "samples": 4}, [0.1]))
    (tmp_path / "kept.json").write_text(json.dumps([kept]))
    kept_runs.unpack(tmp_path / "kept.json", tmp_path, settings.SMALL, {name: options})
    assert not (tmp_path / "runs").exists()


def test_files_of_an_earlier_version_count_for_nothing(tmp_path):
    path = Path(__file__).resolve().parents[4] / "docs/benchmarks/2026-11-23-smollm2-small.json"
    assert kept_runs.unpack(path, tmp_path, settings.SMALL, settings.runs(settings.SMALL)) == 0


def test_a_preset_of_another_meaning_is_another_run(tmp_path, monkeypatch):
    options = settings.runs(settings.SMALL)["2:4, preset best"]
    before = kept_runs.file_of(tmp_path, "2:4, preset best", settings.SMALL, options)
    monkeypatch.setitem(settings.PRESETS, "best", settings.PRESETS["fast"])
    assert kept_runs.file_of(tmp_path, "2:4, preset best", settings.SMALL, options) != before


def test_a_run_that_is_there_is_not_replaced(tmp_path):
    name = "2:4, Wanda"
    options = settings.runs(settings.SMALL)[name]
    path = kept_runs.file_of(tmp_path, name, settings.SMALL, options)
    kept_runs.write(path, {"there": True})
    (tmp_path / "kept.json").write_text(json.dumps([kept_runs.compact(pruned(name, options, [0.1]))]))
    kept_runs.unpack(tmp_path / "kept.json", tmp_path, settings.SMALL, {name: options})
    assert json.loads(path.read_text()) == {"there": True}


def test_a_layer_without_losses_with_g_itself_is_kept_beside_others(tmp_path):
    """Experts that no token reached are pruned without the shrinkage of the others."""
    whole = pruned("60 % per-row, preset best", {"preset": "best"}, [0.1, 0.2])
    with_gram = {"full": 9.0, "warm_start": 5.0, "result": 4.5}
    whole["layers"][1]["losses"] = {**whole["layers"][1]["losses"], "unshrunk": with_gram}
    again = kept_runs.expand(json.loads(json.dumps(kept_runs.compact(whole))))
    assert [layer["losses"].get("unshrunk") for layer in again["layers"]] == [None, with_gram]
    assert kept_runs.mean_loss(again) == kept_runs.mean_loss(whole) == (3 / 8 + 0.5) / 2
