"""README's lines in an empty environment: python model_check.py REPRODUCE-FOLDER WHEEL WHEEL

Makes an environment with both wheels and what they ask for (PyTorch and Transformers), runs the README's
Python there, a layer and then SmolLM2-135M at 60 % per row with a preset that refines, and checks what came out by a program
that does not import sparsefw. script/python --model-check runs it; it needs PyPI, some 6 GB of disk while
it runs, and half an hour.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CALIBRATION_TOKENS, HELD_OUT_TOKENS = 2 * 2048, 2 * 2048

# Plain PyTorch and Transformers: perplexity over whole windows of 2048 tokens, and the pruned matrices.
INDEPENDENT = """
import json, math, sys
import torch, transformers
from safetensors.torch import load_file
assert "sparsefw" not in sys.modules
model = transformers.AutoModelForCausalLM.from_pretrained("pruned", dtype="auto").eval()
tokenizer = transformers.AutoTokenizer.from_pretrained("pruned")
ids = tokenizer(open("held-out.txt").read(), return_tensors="pt").input_ids[0]
total = count = 0
with torch.no_grad():
    for window in ids[: len(ids) // 2048 * 2048].view(-1, 2048):
        likely = model(window[None]).logits[0].double().log_softmax(-1)
        for position in range(2047):
            total -= likely[position, window[position + 1]].item()
            count += 1
dense, pruned = (load_file(f"{folder}/model.safetensors") for folder in ("model", "pruned"))
assert dense.keys() == pruned.keys()
matrices = wrong = kept = zeros = changed = 0
for name, old in dense.items():
    new = pruned[name]
    assert new.dtype == old.dtype == torch.bfloat16, name
    assert new.isfinite().all(), name
    if ".layers." not in name:
        assert torch.equal(old, new), name
        continue
    changed += int(not torch.equal(old, new))
    if old.ndim != 2:
        continue
    matrices += 1
    stays = new != 0
    keep = old.shape[1] - int(0.6 * old.shape[1])
    # A weight that was zero before shows in no mask: the row's mask may keep it or not.
    open_ = (old == 0).sum(1)
    wrong += int(((stays.sum(1) > keep) | (stays.sum(1) + open_ < keep)).sum())
    kept, zeros = kept + keep * len(old), zeros + int(open_.sum())
print(json.dumps({"perplexity": math.exp(total / count), "tokens": count, "matrices": matrices,
                  "wrong_rows": wrong, "kept": kept, "zeros_before": zeros, "changed": changed, "torch": torch.__version__,
                  "transformers": transformers.__version__}))
"""


def run(command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False,
                          **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def programs():
    """README's for a layer and for a model."""
    page = (ROOT / "README.md").read_text()
    return [page.split(f"<!-- {name} -->\n```python\n")[1].split("```")[0] for name in ("python-layer", "python-model")]


def cut(tokenizer, text, tokens):
    """The beginning of a text, somewhat more than so many tokens."""
    characters = len(text) * (tokens + 64) // len(tokenizer(text, verbose=False)["input_ids"])
    while len(tokenizer(text[:characters], verbose=False)["input_ids"]) < tokens:
        characters += 256
    return text[:characters]


def prepare(folder, work):
    """model/, text.txt and held-out.txt, from packages."""
    sys.path.insert(0, str(ROOT / "client/python/benchmarks/reproduce"))
    import inputs
    import transformers

    (work / "model").symlink_to(inputs.model_folder(folder).resolve())
    (work / "tests").symlink_to(ROOT / "tests")
    tokenizer, texts = transformers.AutoTokenizer.from_pretrained(work / "model"), inputs.texts(folder)
    (work / "text.txt").write_text(cut(tokenizer, texts["calibration"], CALIBRATION_TOKENS))
    (work / "held-out.txt").write_text(cut(tokenizer, texts["wikipedia"], HELD_OUT_TOKENS))


def main():
    folder, *wheels = (Path(argument).resolve() for argument in sys.argv[1:])
    layer, model = programs()
    scratch = Path(tempfile.mkdtemp(prefix="sparsefw-model-check-", dir=folder))
    try:
        work, venv = scratch / "work", scratch / "venv"
        work.mkdir()
        prepare(folder, work)
        run([os.path.realpath(sys.executable), "-m", "venv", venv])
        started = time.monotonic()
        python = venv / "bin/python"
        run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile",
             *(f"{wheel}[hf]" if wheel.name.startswith("sparsefw-") else wheel for wheel in wheels)])
        print(f"installed in {time.monotonic() - started:.0f} s", flush=True)
        clean = {"HOME": str(work), "PATH": f"{venv}/bin", "HF_HUB_OFFLINE": "1"}
        clean |= {name: os.environ[name] for name in ("OMP_NUM_THREADS",) if name in os.environ}
        print(run([python, "-c", layer], cwd=work, env=clean), end="", flush=True)
        started = time.monotonic()
        printed = run([python, "-c", model], cwd=work, env=clean)
        print(printed + f"in {time.monotonic() - started:.0f} s", flush=True)
        printed_too = run([python, "-c", INDEPENDENT], cwd=work, env=clean)
        found = json.loads(printed_too.splitlines()[-1])
        print(found, flush=True)
        reported = json.loads((work / "pruned/sparsefw.json").read_text())
        assert found["matrices"] == len(reported["layers"]) == 210
        assert found["wrong_rows"] == 0
        assert found["changed"] >= 210
        assert found["kept"] == sum(row["kept"] for row in reported["layers"])
        perplexity = float(printed.splitlines()[-1])
        assert abs(perplexity / found["perplexity"] - 1) < 1e-5, (perplexity, found["perplexity"])
        print(f"ok: exact counts in {found['matrices']} matrices, perplexity {perplexity:.4f} both times")
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
