"""script/gpu-check's parts where there is no GPU: what it makes of programs that fail, of
sanitizers, of machines that lack something."""
import re
import stat
import subprocess
import sys
import tarfile

import pytest
from conftest import ROOT
from gpu_check import bundle, gtests, layout, libraries, parts, runner, service, summary
from harness import machine, places

LISTING = """Suite/Shapes.
  Case/cuda_float64_4x8_2_4_F32  # GetParam() = (3, 16-byte object)
  Case/cuda_float64_4096x4096_F32
Manners.
  Stops/cuda_float32
"""


def program(path, text):
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


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


class Items(list):
    """What is reported: [(name, ok, detail)]."""

    def __call__(self, name, ok, detail="", **_):
        self.append((name, ok, detail))

    def wrong(self):
        return [f"{name}: {detail}" for name, ok, detail in self if ok is False]


@pytest.fixture
def items():
    return Items()


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


UNITS = ["", "", "us", "%"]
HEADER = ["ID", "Kernel Name", "gpu__time_duration.sum", "dram"]


def ncu_says(*rows):
    lines = ["==PROF== Connected", '{"begin": "x"}',
             *(",".join(f'"{field}"' for field in row) for row in (HEADER, UNITS, *rows))]
    return "\n".join(lines)


def test_kernels_are_counted_by_name():
    said = ncu_says(["0", "void sparsefw::cuda::(anonymous namespace)::TileKernel(It<float>, Slots)",
                     "1,200.5", "3"],
                    ["1", "TileKernel", "800.5", "3"], ["2", "OtherTileKernel<float>", "7", "3"])
    assert parts.profiled(said, ["TileKernel", "WindowKernel"]) == {
        "TileKernel": (2, ", 1000 us each"), "WindowKernel": (0, "")}
    for nothing in ("", "==ERROR== No kernels were profiled.\n", '"a","b"\n'):
        assert parts.profiled(nothing, ["TileKernel"]) == {"TileKernel": (0, "")}


def test_kernels_that_are_profiled_are_the_engines():
    sources = "".join(path.read_text() for path in (ROOT / "core/src/cuda").rglob("*.cu*"))
    for kernel in (name for names in parts.NCU_KERNELS.values() for name in names):
        assert re.search(rf"__global__[^;{{]*\b{kernel}\(", sources), kernel


def test_the_sizes_of_checkout_and_bundle_are_said_and_limited():
    mebi = 1 << 20
    assert bundle.sizes(20 * mebi, 36 * mebi) == \
        "tree 20.0 MiB, bundle 36.0 MiB, together 56.0 of at most 56 MiB"
    with pytest.raises(layout.Problem, match="too large to travel: tree 20.0 MiB, bundle 36.0"):
        bundle.sizes(20 * mebi, 36 * mebi + 1)


def test_the_checkout_is_what_git_tracks_or_would(tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text("*.o\n")
    (tmp_path / "tracked").write_text("x" * 100)
    subprocess.run(["git", "-C", tmp_path, "add", "tracked"], check=True)
    (tmp_path / "new").write_text("x" * 10)
    (tmp_path / "ignored.o").write_text("x" * 1000)
    (tmp_path / "link").symlink_to("none")
    assert bundle.tree_bytes(tmp_path) == 100 + 10 + len("*.o\n") + len("none")
    (tmp_path / "tracked").unlink()  # tracked and gone
    assert bundle.tree_bytes(tmp_path) == 10 + len("*.o\n") + len("none")


def test_without_git_the_size_is_not_known(tmp_path):
    with pytest.raises(layout.Problem, match="git does not say"):
        bundle.tree_bytes(tmp_path)


def packed(folder):
    """A bundle that holds one program."""
    (folder / layout.NAME / "bin").mkdir(parents=True)
    program(folder / layout.NAME / "bin/sparsefw-bench-device", "echo it runs\n")
    archive = folder / "a.tar.xz"
    with tarfile.open(archive, "w:xz") as out:
        out.add(folder / layout.NAME, layout.NAME)
    return archive


@pytest.mark.parametrize("lzma", [True, False])
def test_a_bundle_is_unpacked_with_or_without_lzma(tmp_path, monkeypatch, lzma):
    archive = packed(tmp_path)
    if not lzma:
        def refuse(_):
            raise tarfile.ReadError("lzma module is not available")
        monkeypatch.setattr(layout.tarfile, "open", refuse)
    found = layout.unpack(archive, tmp_path / "to")
    done = subprocess.run([found / "bin/sparsefw-bench-device"], capture_output=True, check=True)
    assert done.stdout == b"it runs\n"


def test_a_bundle_counts_where_nothing_was_built(tmp_path, monkeypatch):
    build = tmp_path / "build"
    monkeypatch.setattr(places, "ROOT", tmp_path)
    monkeypatch.setattr(places, "BUNDLE", build / layout.NAME)
    monkeypatch.setattr(layout, "ARCHIVE", build / f"{layout.NAME}.tar.xz")
    assert layout.home() == build
    layout.unpack_where_nothing_was_built()  # nothing to unpack
    build.mkdir()
    (tmp_path / "made").mkdir()
    packed(tmp_path / "made").rename(layout.ARCHIVE)
    (build / layout.NAME).mkdir()
    (build / layout.NAME / "of_an_older_one").touch()
    layout.unpack_where_nothing_was_built()
    assert layout.home() == build / layout.NAME
    assert sorted(path.name for path in layout.home().iterdir()) == ["bin"]
    (build / "bin").mkdir()
    (build / "bin/sparsefw-bench-device").touch()
    assert layout.home() == build


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


def test_all_parts_fit_the_total():
    assert sum(part.seconds for part in parts.PARTS) <= runner.TOTAL_SECONDS <= 540
    assert all(part.quick_seconds <= part.seconds for part in parts.PARTS)
    assert [part.name for part in parts.PARTS][:4] == ["smoke", "goal", "ncu", "tests"]


def test_a_bug_in_a_part_is_an_item(monkeypatch, capsys):
    monkeypatch.setitem(parts.BY_NAME, "ncu", parts.Part("ncu", 1, 1, lambda context: 1 / 0, ""))
    parts.run_part("ncu", None)
    assert "ZeroDivisionError" in capsys.readouterr().out


@pytest.mark.parametrize("name, along", [
    ("libc.so.6", False), ("libm.so.6", False), ("ld-linux-x86-64.so.2", False),
    ("libmvec.so.1", False), ("libnss_files.so.2", False), ("libcuda.so.1", False),
    ("libcublas.so.13", False), ("libcublasLt.so.13", False), ("libcudart.so.13", False),
    ("libstdc++.so.6", True), ("libgcc_s.so.1", True), ("libcares.so.2", True),
    ("libopenblas.so.0", True), ("libcrypto.so.3", True), ("libcurl.so.4", True)])
def test_which_libraries_come_along(name, along):
    assert bool(libraries.comes_along(name)) is along


def test_glibc(monkeypatch):
    assert machine.glibc_too_old("2.4") is None  # by number: 2.36 is newer than 2.4
    assert "needs glibc 9.9" in machine.glibc_too_old("9.9")


def test_loss_and_counts_of_the_service_step():
    weight, gram = [[1.0, 2.0], [3.0, -1.0]], [[2.0, 0.5], [0.5, 1.0]]
    mask = [[1, 0], [0, 0]]
    # (0, 2): 4 * 1; (3, -1): 9 * 2 - 3 * 0.5 * 2 + 1
    assert service.loss(weight, gram, mask) == 4 + 16
    assert service.check_counts([[1, 1, 0, 0, 0, 1, 0, 1]], "2:4") is None
    assert "2:4" in service.check_counts([[1, 1, 1, 0, 0, 1, 0, 0]], "2:4")
    assert service.check_counts([[1, 1, 0, 0, 0]] * 2, "per-row") is None
    assert service.check_counts([[1, 1, 1, 0, 0], [1, 0, 0, 0, 0]], "per-row")
    assert service.check_counts([[1, 1, 1, 0, 0], [1, 0, 0, 0, 0]], "unstructured") is None


def test_tensors_of_the_fixture():
    tensors = service.read_safetensors(
        ROOT / f"tests/fixtures/minilm/{service.SMALL}.safetensors")
    shape, values = tensors[f"{service.SMALL}.weight"]  # float16
    assert shape == [384, 384] and len(values) == 384**2 and 0 < max(values) < 10
    gram = service.rows_of(*tensors["gram"])
    assert gram[3][5] == gram[5][3] and gram[7][7] > 0


def result_of(**changes):
    losses = {"lower_bound": 1.0, "final": 2.0, "warm_start": 3.0}
    return {"state": "SUCCEEDED", "device": "cuda:0", "losses": losses, **changes}


@pytest.mark.parametrize("changes, words", [
    ({"state": "FAILED"}, "ended as FAILED"),
    ({"device": "cpu"}, "ran on cpu, not on cuda:0"),
    ({"losses": {"lower_bound": 5.0, "final": 2.0, "warm_start": 3.0}}, "bound <= loss")])
def test_results_that_break_a_promise(changes, words):
    case = ("x", "2:4", ())
    wrong = service.wrong_with(result_of(**changes), [[1, 1, 0, 0]], {}, case, "cuda:0")
    assert words in wrong
    assert service.wrong_with(result_of(), [[1, 1, 0, 0]], {}, case, "cuda:0") is None


def test_the_service_on_the_cpu(bin_folder, items):
    service.run(bin_folder, ROOT / "tests/fixtures/minilm", "cpu", 120, items,
                cases=service.CASES[2:3])
    assert not items.wrong() and [name for name, *_ in items][-1] == "drain", items


def test_a_server_that_does_not_start_is_named(tmp_path, items):
    service.run(tmp_path, ROOT / "tests/fixtures/minilm", "cpu", 20, items)
    assert "does not start" in items.wrong()[0]


def test_the_summary_is_short_whatever_failed():
    wrong = [{"item": f"case {index}", "ok": False, "detail": "x" * 5000} for index in range(400)]
    step = {"name": "tests", "outcome": "failed", "seconds": 1.0, "items": wrong}
    text = summary.text({"gpu_result": False, "device": "cpu", "steps": [step], "passed": False,
                         "seconds": 1.0, "commit": "c", "machine": {}}, {})
    assert len(text.encode()) <= summary.LIMIT_BYTES
    assert text.startswith("==== gpu-check FAILED") and "NOT A GPU RESULT" in text
    assert "tests: case 0: x" in text and "more, in gpu-check.json" in text


def test_without_a_gpu_nothing_is_measured(tmp_path):
    if machine.line_of(["nvidia-smi", "-L"]):
        pytest.skip("there is a GPU here")
    done = subprocess.run([str(ROOT / "script/gpu-check"), "run", "--out", str(tmp_path / "out")],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "no GPU here, nothing was measured" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("arguments", [["walk"], ["run", "--fast"], ["bundle", "a", "b"],
                                       ["run", "--only", "smoke,none"]])
def test_usage(arguments, monkeypatch):
    if arguments[0] == "bundle":  # the script would build first
        command = [sys.executable, str(ROOT / "core/benchmarks/gpu_check"), *arguments]
    else:
        command = [str(ROOT / "script/gpu-check"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "usage" in done.stderr.lower()
