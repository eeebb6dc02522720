"""script/gpu-check's parts where there is no GPU: bundles, profiles, the service, the summary, machines
that lack something. test_gpu_tests.py: the part that runs tests."""
import json
import re
import subprocess
import sys
import tarfile

import pytest
from conftest import ROOT, program
from gpu_check import bundle, layout, libraries, parts, runner, service, summary
from harness import machine, places

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


def test_all_parts_fit_the_total():
    assert sum(part.seconds for part in parts.PARTS) <= runner.TOTAL_SECONDS <= 540
    assert all(part.quick_seconds <= part.seconds for part in parts.PARTS)
    assert [part.name for part in parts.PARTS][:4] == ["smoke", "goal", "ncu", "tests"]


def test_a_bug_in_a_part_is_an_item(monkeypatch, capsys):
    monkeypatch.setitem(parts.BY_NAME, "ncu", parts.Part("ncu", 1, 1, lambda context: 1 / 0, ""))
    parts.run_part("ncu", None)
    assert "ZeroDivisionError" in capsys.readouterr().out


def test_an_item_of_a_program_that_dies_has_its_part_once(tmp_path, capsys):
    one = program(tmp_path / "one", """echo '{"begin": "a"}'; echo '{"item": "a", "ok": true}'; exit 3\n""")
    parts._relay("prune", [one], 10)
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["item"] for line in said if "item" in line] == ["prune: a", "prune: a"]
    assert said[-1]["ok"] is False and "status 3" in said[-1]["detail"]


@pytest.mark.parametrize("name, along", [
    ("libc.so.6", False), ("libm.so.6", False), ("ld-linux-x86-64.so.2", False),
    ("libmvec.so.1", False), ("libnss_files.so.2", False), ("libcuda.so.1", False),
    ("libcublas.so.13", False), ("libcublasLt.so.13", False), ("libcusolver.so.12", False), ("libcudart.so.13", False),
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
