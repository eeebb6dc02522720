"""What script/check finds, on trees made for it."""
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tree(tmp_path):
    """tree({path: text}) -> what a check that is copied there finds."""
    (tmp_path / "script/checks").mkdir(parents=True)
    shutil.copy(ROOT / "script/check", tmp_path / "script")
    for check in (ROOT / "script/checks").iterdir():
        shutil.copy(check, tmp_path / "script/checks")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)

    def check(name, files):
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        done = subprocess.run([tmp_path / "script/check", name], capture_output=True, text=True, check=False)
        assert done.returncode == bool(done.stderr), done
        return done.stderr

    return check


def body(lines):
    """A function's body of so many lines, braces included."""
    return "{\n" + "  f();\n" * (lines - 2) + "}\n"


def test_limits_of_files_and_folders(tree):
    at_the_limits = {"server/a.cc": "\n" * 400, **{f"core/{name}.py": "" for name in range(25)}}
    assert tree("limits", at_the_limits) == ""
    assert "server/a.cc: 401 lines; at most 400" in tree("limits", {"server/a.cc": "\n" * 401})
    assert "core: 26 files; at most 25" in tree("limits", {"core/README.md": ""})


def test_what_has_no_limits(tree):
    many = {f"client/go/{name}.go": "" for name in range(30)} | {f"docs/{name}.md": "" for name in range(30)}
    generated = {f"client/{name}": "\n" * 1000 for name in ("go/v1/a.pb.go", "python/src/sparsefw/v1/a_pb2.py")}
    assert tree("limits", many | generated | {"tests/a_test.cc": "void F() " + body(70)}) == ""


@pytest.mark.parametrize("head", [
    "void F(int a) ", "class C {\n void F() const override ", "C::F(int x) : a_(x), b_{{x}, {1}} ",
    "template <typename T>\nauto C<T>::F() -> std::vector<T> ", "void F(const struct stat& s) ",
    "const auto F = [](int a) "])
def test_limits_of_functions(tree, head):
    for lines, found in ((60, ""), (61, "F: 61 lines; at most 60")):
        end = "};\n" if head.startswith("class") else ""
        text = f"namespace a {{\nconstexpr int kX[] = {{1, 2}};\n{head}{body(lines)}{end}}}\n"
        words = tree("limits", {"server/a.cc": text})
        assert found in words and bool(words) == bool(found), words


def test_what_is_no_function(tree):
    table = "constexpr auto kNames = std::to_array<std::string_view>({\n" + '    "{",\n' * 80 + "});\n"
    comment = "/* void F() {\n" + "\n" * 80 + "*/\n// {\n#define X(a) {\n"
    kinds = "enum class E {\n" + "  kA = (1),\n" * 80 + "};\nstruct S {\n" + "  int a = f(1);\n" * 80 + "};\n"
    assert tree("limits", {"core/src/a.h": table + comment + kinds}) == ""


def test_paths_of_pages(tree):
    good = {"README.md": "`server/a.cc`, [b](docs/b.md#c)", "CONTRIBUTING.md": "", "docs/b.md": "[d](benchmarks/d.json)",
            "docs/benchmarks/d.json": "{}", "server/a.cc": ""}
    assert tree("paths", good) == ""
    words = tree("paths", {"README.md": "`server/gone.cc` and [b](docs/gone.md)", "docs/benchmarks/e.json": "{}"})
    assert "no server/gone.cc" in words and "no docs/gone.md" in words and "e.json: no page names it" in words
    assert "d.json" not in words


def test_an_unknown_check_is_refused():
    done = subprocess.run([ROOT / "script/check", "../check"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "limits " in done.stderr
