"""The arithmetic of the goals, on numbers worked by hand."""
import pytest
from cpu import goals, late, report, schema
from harness.store import SchemaError

CEILING = {"threads": 2, "blas": "test", "sgemm_flops_per_second": 1e11,
           "triad_bytes_per_second": 1e10, "l2_triad_bytes_per_second": 1e11}


def cell(seconds, pattern="unstructured", threads=2, counts=(10, 100), toggled=1000, loss=5.0):
    """An engine's cell that takes `seconds` for every iteration, in two equal runs."""
    run = [{"iterations": count, "seconds": seconds * count, "toggled_per_iteration": toggled,
            "relaxed_loss": loss} for count in counts]
    return {"rows": 1000, "cols": 500, "pattern": pattern, "alpha": 0.9, "threads": threads,
            "runs": [run, run]}


def peer(seconds, count, loss=5.0, threads=2):
    return {"rows": 1000, "cols": 500, "pattern": "unstructured", "alpha": 0.9,
            "threads": threads, "iterations": count, "relaxed_loss": loss,
            "seconds_after": [seconds * (i + 1) for i in range(count)]}


def solve(**changes):
    return {"seconds": 10.0, "final_loss": 4.0, "warm_start_loss": 8.0, "iterations": 2000,
            "stop_cause": "iterations", "peak_resident_bytes": 2**24,
            "resident_before_bytes": 0, "seconds_to_target": None, **changes}


def one(rows, what):
    (found,) = [row for row in rows if row["what"].startswith(what)]
    return found


def test_floor_is_the_larger_of_traffic_and_flops():
    # 16 * 500000 bytes at 1e10 B/s = 0.8 ms; 2 * 1000 * 500 flops at 1e11 = 0.01 ms
    assert goals.floor_seconds(1000, 500, 1000, 1e10, 1e11) == pytest.approx(8e-4)
    # 2 * 200000 * 500 flops at 1e11 = 2 ms
    assert goals.floor_seconds(1000, 500, 200_000, 1e10, 1e11) == pytest.approx(2e-3)


def test_memory_bound():
    # W = 1000*500*4, G = 500*500*4: 2 * 3e6 + 8 * 5e5
    assert goals.memory_bound_bytes(1000, 500) == 10_000_000


def test_a_mark_is_the_median_of_the_runs():
    runs = [[{"iterations": 10, "seconds": seconds, "toggled_per_iteration": 1.0,
              "relaxed_loss": 1.0}] for seconds in (3.0, 1.0, 9.0)]
    assert goals.seconds_per_iteration({"runs": runs}) == pytest.approx(0.3)


def test_cells_are_compared_over_the_longest_common_range():
    slow, fast = cell(0.4, counts=(10, 25, 31)), cell(0.1, counts=(10, 25, 100))
    ratio, count = goals.compare_cells(slow, fast)
    assert (ratio, count) == (pytest.approx(4), 25)
    assert goals.compare_cells(cell(1, counts=(7,)), cell(1, counts=(8,))) == (None, 0)


def test_peer_is_compared_over_the_iterations_that_both_ran():
    engine = cell(0.1, counts=(10, 40, 100), loss=5.0)
    ratio, difference, count = goals.compare_with_peer(peer(4.0, 40, loss=5.001), engine)
    assert (ratio, count) == (pytest.approx(40), 40)
    assert difference == pytest.approx(0.0002, rel=1e-3)
    # The engine ran out of time before the peer's end: times compare, losses do not.
    ratio, difference, count = goals.compare_with_peer(peer(4.0, 60), engine)
    assert (ratio, difference, count) == (pytest.approx(40), None, 40)


@pytest.mark.parametrize("speed, met", [(30.0, True), (29.9, False)])
def test_peer_goal(speed, met):
    results = {"iterations": [cell(0.1)], "peer": [peer(0.1 * speed, 100)]}
    rows = goals.peer_goals(results, (1000, 500), 2)
    assert one(rows, "one iteration")["met"] is met
    assert one(rows, "relaxed loss")["met"] is True


def test_a_peer_that_was_skipped_says_why():
    rows = goals.peer_goals({"iterations": [cell(0.1)], "peer": [], "peer_skipped": "no PyTorch"},
                            (1000, 500), 2)
    assert [(row["value"], row["met"], row["note"]) for row in rows] == [
        (None, None, "no PyTorch")] * 2


def test_floor_goals():
    # Floors: 0.8 ms from memory, 0.08 ms from L2.
    results = {"ceilings": [CEILING],
               "iterations": [cell(1.6e-3), cell(0.16e-3, pattern="per_row")]}
    rows = goals.floor_goals(results, (1000, 500), 2)
    assert one(rows, "one iteration, unstructured")["value"] == pytest.approx(2)
    assert one(rows, "one iteration, unstructured")["met"] is True
    assert one(rows, "one iteration, per_row")["value"] == pytest.approx(2)
    assert one(rows, "one iteration, per_row")["met"] is False


def test_pattern_goals_allow_noise_only():
    results = {"iterations": [cell(1.0), cell(1.04, pattern="per_row"),
                              cell(1.06, pattern="2:4")]}
    rows = goals.pattern_goals(results, (1000, 500), 2)
    assert one(rows, "one iteration, per_row")["met"] is True
    assert one(rows, "one iteration, 2:4")["met"] is False


def test_scaling():
    machine = {"cores": 2}
    results = {"machine": machine, "iterations": [cell(1.9, threads=1), cell(1.0)]}
    (row,) = goals.scaling_goals(results, (1000, 500))
    assert (row["value"], row["met"]) == (pytest.approx(1.9), True)
    results = {"machine": {"cores": 1}, "iterations": [cell(1.9, threads=1)]}
    (row,) = goals.scaling_goals(results, (1000, 500))
    assert (row["value"], row["note"]) == (None, "one core only")


@pytest.mark.parametrize("fast, value, met", [
    (solve(seconds_to_target=2.0), 5, True),
    (solve(seconds_to_target=2.5), 4, False),
    (solve(final_loss=4.4), 0, False)])
def test_time_to_loss(fast, value, met):
    entry = {"rows": 1000, "cols": 500, "pattern": "unstructured", "alpha": 0.9, "threads": 2,
             "paper": solve(), "fast": fast, "fast_without_swaps": solve(seconds_to_target=5.0)}
    rows = goals.loss_goals({"time_to_loss": [entry]})
    row = one(rows, "line search, gap stop, swaps")
    assert (row["value"], row["met"]) == (pytest.approx(value), met)
    without = one(rows, "line search, gap stop:")
    assert (without["value"], without["met"]) == (pytest.approx(2), None)
    if value == 0:
        assert "10.00% above" in row["note"]


def test_gram_goals():
    entry = {"cols": 500, "tokens": 100, "threads": 1, "flops": 1e9, "ssyrk_seconds": 0.9,
             "f32_seconds": 1.0, "bf16_seconds": 1.04, "f16_seconds": 1.2}
    rows = goals.gram_goals({"gram": [entry]})
    assert one(rows, "Gram sum of fp32")["value"] == pytest.approx(0.9)
    assert [row["met"] for row in rows] == [True, True, False]


def test_memory_goal_leaves_the_program_itself_out():
    entry = {"rows": 1000, "cols": 500, "swaps": False,
             **solve(peak_resident_bytes=15_000_000, resident_before_bytes=6_000_000)}
    (row,) = goals.memory_goals({"memory": [entry]})
    assert (row["value"], row["met"]) == (pytest.approx(0.9), True)


def late_entry(**changes):
    return {"rows": 1000, "cols": 500, "pattern": "per_row", "alpha": 0.9, "threads": 2,
            "first": 100, "last": 2000, "seconds_per_iteration": 0.002,
            "screened_iterations": 1900, "screened_epochs": 11, "active_share": 0.05,
            "peer_seconds_per_iteration": 0.25, "solve": solve(seconds=5.0), **changes}


def test_late_iterations_and_whole_solves():
    iteration, whole = late.goals({"late": [late_entry()]})
    assert (iteration["value"], iteration["met"]) == (pytest.approx(125), True)
    assert (whole["value"], whole["met"]) == (pytest.approx(100), True)
    assert "5.0% of the weights" in iteration["note"]
    (slow,) = late.goals({"late": [late_entry(alpha=0.0, seconds_per_iteration=0.05)]})
    assert (slow["value"], slow["met"]) == (pytest.approx(5), False)
    assert all(row["value"] is None and "no PyTorch" in row["note"]
               for row in late.goals({"late": [late_entry(peer_seconds_per_iteration=None)]}))


def complete_results():
    return {"schema": schema.VERSION, "date": "2026-01-01", "commit": "abc", "plan": "smoke",
            "machine": {"processor": "p", "cores": 2, "load_average_at_start": [0.1, 0.1, 0.1],
                        "busy_at_start": 0.0, "compiler": "c", "system": "s"},
            "ceilings": [CEILING], "iterations": [cell(0.1)], "peer": [peer(4.0, 100)],
            "late": [late_entry()]}


def test_every_line_is_there_even_when_nothing_was_measured():
    empty = {"machine": {"cores": 2}}
    full = complete_results()
    nothing = goals.all_goals(empty, [(1000, 500)])
    assert all(row["value"] is None and row["note"] for row in nothing)
    assert {row["what"] for row in nothing} >= {
        "one iteration, unstructured", "relaxed loss", "one iteration, per_row",
        "one iteration, 2:4", "1 → 2 threads", "time to the paper's loss", "Gram sum",
        "peak memory of a solve"}
    assert len(goals.all_goals(full, [(1000, 500)])) >= len(nothing)


def test_schema_accepts_and_refuses():
    results = complete_results()
    results["goals"] = goals.all_goals(results, [(1000, 500)])
    schema.check(results)
    verdict = next(goal for goal in results["goals"] if goal["met"] is not None)
    for breaking in ({"commit": None}, {"schema": 99}, {"ceilings": [{"threads": 2}]},
                     {"goals": [{**verdict, "value": None}]}, {"goals": None}):
        with pytest.raises(SchemaError):
            schema.check({**results, **breaking})


@pytest.mark.parametrize("paste, name, there, elsewhere", [
    (report.paste, "bench", "40.0x", "not measured"),
    (report.paste_goals, "goals", "not measured", "40.0x")])
def test_tables_are_pasted_between_the_markers_of_their_page(paste, name, there, elsewhere):
    results = complete_results()
    results["goals"] = goals.all_goals(results, [(1000, 500)])
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    page = f"before\n{begin}\nold\n{end}\nafter\n"
    new = paste(page, results, "link")
    assert new.startswith(f"before\n{begin}\nlink\n") and new.endswith(f"{end}\nafter\n")
    assert "old" not in new and there in new and elsewhere not in new
    assert paste(new, results, "link") == new
    with pytest.raises(ValueError):
        paste("no markers", results, "link")


def test_a_disturbed_machine_is_marked():
    results = complete_results()
    assert "NOT QUIET" not in report.heading(results)
    results["machine"]["busy_at_end"] = 0.5
    assert "NOT QUIET" in report.heading(results)
