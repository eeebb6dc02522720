"""script/check kernels: on objects that nvcc makes here."""
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHECK = ROOT / "script/checks/kernels"
NVCC = os.environ.get("CUDACXX") or shutil.which("nvcc", path="/usr/local/cuda/bin")
CODE = [f"-gencode=arch=compute_{number},code=sm_{number}" for number in (80, 90, 100)]
# Its values are all alive at once.
KERNEL = """
__global__ void Sums(const float* from, float* to) {
  float v[48];
#pragma unroll
  for (int k = 0; k < 48; ++k) v[k] = from[threadIdx.x + 32 * k];
#pragma unroll
  for (int k = 0; k < 48; ++k) to[threadIdx.x + 32 * k] = v[k] * v[(7 * k + 5) % 48] + v[47 - k];
}
"""


@pytest.fixture
def check(tmp_path):
    """check(registers, *arguments): what is said of the kernel with so many registers."""
    (tmp_path / "script/checks").mkdir(parents=True)
    (tmp_path / "core/src/cuda").mkdir(parents=True)
    shutil.copy(CHECK, tmp_path / "script/checks")
    (tmp_path / "build").symlink_to(ROOT / "build")
    source = tmp_path / "core/src/cuda/sums.cu"
    source.write_text(KERNEL)
    objects = tmp_path / "objects"
    objects.mkdir()

    def run(registers, *arguments):
        subprocess.run([NVCC, *CODE, "-O3", f"-maxrregcount={registers}", "-c", source, "-o",
                        objects / "sums.cu.o"], check=True)
        done = subprocess.run([tmp_path / "script/checks/kernels", "--objects", objects, *arguments],
                              capture_output=True, text=True, check=False)
        if done.returncode == 77:
            pytest.skip(done.stderr.strip())
        return done

    run.table = tmp_path / "script/checks/kernels.json"
    return run


@pytest.mark.skipif(NVCC is None, reason="nvcc is not installed")
def test_spills_and_more_registers_are_faults(check):
    assert check(255, "--update").returncode == 0
    assert check(255).returncode == 0
    known = json.loads(check.table.read_text())
    of_all = known["sums.cu: Sums"]
    assert list(of_all) == ["sm_80", "sm_90", "sm_100"]
    figures = of_all["sm_80"]
    assert figures["registers"] > 48 and figures["stack"] == figures["spill_accesses"] == 0
    spilled = check(32)
    assert spilled.returncode == 1
    for architecture in of_all:
        assert f"{architecture}: sums.cu: Sums: " in spilled.stderr
    assert "registers are spilled" in spilled.stderr
    assert "stack must be at most 0; got " in spilled.stderr
    figures["registers"] -= 1
    check.table.write_text(json.dumps(known))
    said = check(255).stderr
    assert f"sm_80: sums.cu: Sums: registers must be at most {figures['registers']}; got" in said
    assert "sm_90" not in said and "sm_100" not in said


@pytest.mark.skipif(NVCC is None, reason="nvcc is not installed")
def test_the_table_names_every_kernel_and_no_other(check):
    assert check(255, "--update").returncode == 0
    known = json.loads(check.table.read_text())
    known["gone.cu: Gone"] = known.pop("sums.cu: Sums")
    check.table.write_text(json.dumps(known))
    said = check(255).stderr
    assert "sums.cu: Sums: is not in the table" in said
    assert "gone.cu: Gone: is in the table and in no object" in said
