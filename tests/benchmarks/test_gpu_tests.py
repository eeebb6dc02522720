"""How script/gpu-check runs tests, where there is no GPU: what it makes of tests that fail, skip
themselves, crash or hang, and of sanitizers."""
import re

import pytest
from conftest import ROOT, program
from gpu_check import gtests

LISTING = """Suite/Shapes.
  Case/cuda_float64_4x8_2_4_F32  # GetParam() = (3, 16-byte object)
  Case/cuda_float64_4096x4096_F32
Manners.
  Stops/cuda_float32
"""


def fake_test(folder, body, seconds=30):
    """A program that lists LISTING, and otherwise does `body`."""
    listing = folder / "listing"
    listing.write_text(LISTING)
    program(folder / "fake_test", f"""case "$*" in *--gtest_list_tests*) cat {listing}; exit;; esac
for flag; do case $flag in --gtest_output=json:*) report=${{flag#*json:}};; esac; done
{body}
""")
    return {"name": "fake_test_gpu", "program": "fake_test", "arguments": ["--gtest_filter=*cuda*"],
            "seconds": seconds}


def fake_tests(folder, body, **options):
    return gtests.Tests(folder, [fake_test(folder, body, **options)], "cuda", {"PATH": "/bin"})


SHAPES = [f"Suite/Shapes.Case/cuda_float64_{shape}" for shape in ("4x8_2_4_F32", "4096x4096_F32")]
CASES = [*SHAPES, "Manners.Stops/cuda_float32"]


def events(*cases):
    """A shell command that prints what GoogleTest prints of cases (name, how it ends, output)."""
    lines = []
    for name, state, said in cases:
        lines.append(f"[ RUN      ] {name}")
        lines += [said] if said else []
        lines += [f"[{state:>9} ] {name} (0 ms)"] if state else []
    return "\n".join(f"echo '{line}'" for line in lines)


def test_cases_and_arguments(tmp_path, items):
    tests = fake_tests(tmp_path, "exit 1")
    (test,) = tests._tests
    assert tests.cases(test) == ["Suite/Shapes.Case/cuda_float64_4x8_2_4_F32",
                                 "Suite/Shapes.Case/cuda_float64_4096x4096_F32",
                                 "Manners.Stops/cuda_float32"]
    small = {name for _, names in tests.small_cases(items) for name in names}
    assert small == {"Suite/Shapes.Case/cuda_float64_4x8_2_4_F32", "Manners.Stops/cuda_float32"}
    other = gtests.Tests(tmp_path, [test], "cpu", {})
    assert other._tests[0]["arguments"] == ["--gtest_filter=*cpu*"]


def test_small_cases_are_of_every_kind_in_turn(tmp_path, monkeypatch, items):
    shapes = [f"Shapes.Case/cuda_{rows}x{cols}_{pattern}_F32" for rows, cols in ((1, 1), (5, 64))
              for pattern in ("2_4", "per_row")]
    monkeypatch.setattr(gtests.Tests, "cases", lambda self, test: {
        "a": shapes, "b": ["Manners.One/cuda", "Manners.Two/cuda", "Slow.OfManyThreads/cuda"]}[
            test["name"]])
    tests = gtests.Tests(tmp_path, [{"name": "a"}, {"name": "b"}], "cuda", {})
    chunks = [(test["name"], names) for test, names in tests.small_cases(items)]
    assert [name for name, _ in chunks][:2] == ["a", "b"]
    # both patterns, first on a layer whose columns groups divide, then the other shape
    assert chunks[0][1][:2] == [shapes[2], shapes[1]] or chunks[0][1][:2] == [shapes[2], shapes[3]]
    assert chunks[1][1] == ["Manners.One/cuda", "Manners.Two/cuda"]


def run_all(folder, body, items, seconds=30, **options):
    fake_tests(folder, body, **options).run_all(seconds, 1, items)
    return items


ALL_OK = events(*((name, "OK", "") for name in CASES))


def test_passed_and_skipped_tests_are_counted(tmp_path, items):
    assert run_all(tmp_path, ALL_OK, items) == [("fake_test_gpu", True, "3 passed")]
    items.clear()
    skipped = events(*((name, "OK", "") for name in SHAPES), (CASES[2], "SKIPPED", ""))
    run_all(tmp_path, skipped, items)
    assert items == [("fake_test_gpu", False, "2 passed, 1 skipped (no reason given)")]


@pytest.mark.parametrize("reason, good", [*((reason, True) for reason in gtests.BY_DESIGN),
                                          ("no device: the driver sees none", False)])
def test_a_skip_passes_by_design_alone_and_is_counted_by_its_reason(tmp_path, items, reason, good):
    said = f"/src/tests/core/a_test.cc:91: Skipped\n{reason}\n"
    run_all(tmp_path, events(*((name, "SKIPPED", said) for name in SHAPES), (CASES[2], "OK", "")),
            items)
    assert items == [("fake_test_gpu", good, f"2 skipped ({reason}), 1 passed")]


def test_a_test_that_only_skips_itself_alone_passes_as_it_does_with_others(tmp_path, items):
    """It was not run, since another one had crashed."""
    said = f"/src/a_test.cc:9: Skipped\n{gtests.BY_DESIGN[0]}\n"
    alone = (f'case "$*" in "--gtest_filter={CASES[1]}") {events((CASES[1], "SKIPPED", said))}\n'
             "exit;; esac\n")
    run_all(tmp_path, alone + events((CASES[0], "", "about to crash")) + "\nkill -SEGV $$", items)
    assert {name: ok for name, ok, _ in items}[f"fake_test_gpu: {CASES[1]}"] is True


def test_every_skip_of_a_test_for_devices_is_by_design_or_for_want_of_a_device():
    """The list of reasons is that of the sources."""
    sources = [path for folder in ("core/engines", "core/cuda", "cuda_on_host")
               for path in (ROOT / "tests" / folder).glob("*") if path.suffix in (".cc", ".h")]
    found = {reason for path in sources
             for reason in re.findall(r'GTEST_SKIP\(\) << "([^"]*)"', path.read_text())}
    assert found == {*gtests.BY_DESIGN, "no device: "}


def test_real_tests_that_skip_themselves_give_their_reason(bin_folder, items):
    """What GoogleTest prints, not what we think it prints."""
    program_path = bin_folder.parent / "tests/conformance_test"
    if not program_path.exists():
        pytest.skip("conformance_test is not built")
    test = {"name": "conformance", "program": "tests/conformance_test", "seconds": 60,
            "arguments": ["--gtest_filter=*cpu*float32*3x5*"]}
    gtests.Tests(bin_folder.parent, [test], "cuda", {}).run_all(60, 1, items)
    (_, ok, words), *more = items
    assert ok and not more, items
    assert re.search(r"\d+ passed", words)
    assert re.search(r"\d+ skipped \(the group does not divide the columns\)", words)


def test_outcomes_of_an_output():
    said = ("[ RUN      ] A.b\nwhy\n[  FAILED  ] A.b, where GetParam() = 3 (0 ms)\n"
            "[ RUN      ] A.c\n[       OK ] A.c (1 ms)\n[ RUN      ] A.d\nhalf\n")
    assert gtests.outcomes(said) == {"A.b": ("failed", "why"), "A.c": ("passed", ""),
                                     "A.d": ("unfinished", "half")}


def test_what_fails_runs_again_alone_and_is_named(tmp_path, items):
    body = events((CASES[0], "FAILED", "2 is not 3"), (CASES[1], "OK", ""),
                  (CASES[2], "OK", "")) + "\nexit 1"
    run_all(tmp_path, body, items)
    assert items[0] == ("fake_test_gpu", False, "1 failed, 2 passed")
    assert items[1][:2] == (f"fake_test_gpu: {CASES[0]}", False)
    assert "failed with others, failed alone: 2 is not 3" in items[1][2]


def test_a_crash_does_not_hide_the_cases_behind_it(tmp_path, items):
    """The first case ends the program, except when it runs alone; the others then run alone."""
    alone = "".join(f'case "$*" in "--gtest_filter={name}") {events((name, "OK", ""))}\n'
                    "exit;; esac\n" for name in CASES)
    run_all(tmp_path, alone + events((CASES[0], "", "about to crash")) + "\nkill -SEGV $$", items)
    assert items[0][1] is False and "1 unfinished, 2 not run; status -11" in items[0][2]
    again = {name: (ok, detail) for name, ok, detail in items[1:]}
    assert again[f"fake_test_gpu: {CASES[0]}"][0] is False
    for name in CASES[1:]:
        assert again[f"fake_test_gpu: {name}"][0] is True


def test_a_program_that_does_not_start_ends_nothing(tmp_path, items):
    good = fake_test(tmp_path, ALL_OK)
    bad = {**good, "name": "bad", "program": "none"}
    gtests.Tests(tmp_path, [bad, good], "cuda", {"PATH": "/bin"}).run_all(30, 1, items)
    assert [(name, ok) for name, ok, _ in items] == [("bad", False), ("fake_test_gpu", True)]


def test_tests_that_hang_are_ended_and_named(tmp_path, items, monkeypatch):
    monkeypatch.setattr(gtests, "STALL_SECONDS", 0.5)
    monkeypatch.setattr(gtests, "ALONE_SECONDS", 1.1)
    body = events((CASES[0], "OK", ""), (CASES[1], "", "")) + "\nexec sleep 600"
    run_all(tmp_path, body, items)
    assert "1 passed, 1 unfinished, 1 not run; hung" in items[0][2]
    assert any(CASES[1] in line and "hangs for 1 s alone" in line for line in items.wrong())


def sanitize(folder, said, items, code=0, seconds=20):
    sanitizer = program(folder / "compute-sanitizer",
                        f"echo \"$*\" > {folder}/flags\ncat <<'END'\n{said}\nEND\nexit {code}\n")
    fake_tests(folder, "").sanitize(str(sanitizer), "memcheck", seconds, items)
    return items


def test_sanitizer_without_errors(tmp_path, items):
    sanitize(tmp_path, "========= ERROR SUMMARY: 0 errors", items)
    assert items == [("memcheck", True, "through with 2 of 2 cases")]
    flags = (tmp_path / "flags").read_text()
    assert "--kernel-name kns=sparsefw" in flags and "--report-api-errors no" in flags
    items.clear()
    sanitize(tmp_path, "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)",
             items)
    assert not items.wrong()


@pytest.mark.parametrize("said, code, words", [
    ("========= Invalid write\n========= ERROR SUMMARY: 2 errors", 97, "2 errors: "),
    ("========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)", 0, "1 errors"),
    ("========= Error: Device not supported", 1, "Device not supported"),
    ("nothing at all", 0, "status 0: nothing at all")])  # it checked nothing
def test_sanitizer_with_errors(tmp_path, items, said, code, words):
    sanitize(tmp_path, said, items, code)
    assert words in items.wrong()[0]
    assert items[-1] == ("memcheck", True, "through with 2 of 2 cases")  # the others ran


def test_sanitizer_that_hangs(tmp_path, items):
    slow = program(tmp_path / "compute-sanitizer", "exec sleep 600\n")
    fake_tests(tmp_path, "").sanitize(str(slow), "racecheck", 2, items)
    assert items == [("racecheck", False, "through with 0 of 2 cases, 1 chunks hung")]
