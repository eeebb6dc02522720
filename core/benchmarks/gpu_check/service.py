"""The server and the command line on the fixture's real layers, end to end over a socket."""
import json
import math
import struct
import tempfile
import time
from operator import mul
from pathlib import Path

from harness.process import ProgramError
from harness.server_program import ServerProgram

START_SECONDS = 30
CASE_SECONDS = 20
DRAIN_SECONDS = 10
SMALL = "encoder.layer.5.attention.output.dense"  # 384x384: its loss is formed again here
WIDE = "activations/encoder.layer.2.output.dense"  # its Gram matrix is summed by the server
LINE_SEARCH = ("--step-rule", "line-search", "--iterations", "200")
CASES = (  # (file, pattern, flags)
    (SMALL, "unstructured", LINE_SEARCH),
    (SMALL, "per-row", (*LINE_SEARCH, "--swaps")),
    (SMALL, "2:4", ("--iterations", "300")),
    (WIDE, "unstructured", LINE_SEARCH),
)
SPARSITY = 0.6
CODES = {"F32": "f", "F16": "e", "F64": "d", "BOOL": "?"}  # of struct
LOSS_TOLERANCE = 1e-6  # of one formed again in float64
OTHER_DEVICE_TOLERANCE = 0.02  # of the result of the CPU engine: another path, as good a mask


def read_safetensors(path):
    """{name: (shape, its values in one tuple)}"""
    data = Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            tensors[name] = entry["shape"], struct.unpack(
                f"<{math.prod(entry['shape'])}{CODES[entry['dtype']]}", data[begin:end])
    return tensors


def rows_of(shape, values):
    return [values[row * shape[1]:(row + 1) * shape[1]] for row in range(shape[0])]


def loss(weight, gram, mask):
    """<D, D G> with D = W.(1 - M), in float64; rows of each."""
    terms = []
    for weights, kept in zip(weight, mask):
        pruned = [0.0 if keep else value for value, keep in zip(weights, kept)]
        terms.append(math.fsum(value * sum(map(mul, pruned, gram[col]))
                               for col, value in enumerate(pruned) if value))
    return math.fsum(terms)


def check_counts(mask, pattern):
    """None, or what is wrong."""
    cols = len(mask[0])
    if pattern == "2:4":
        right = all(sum(row[i:i + 4]) == 2 for row in mask for i in range(0, cols, 4))
    elif pattern == "per-row":
        right = all(sum(row) == cols - int(cols * SPARSITY) for row in mask)
    else:
        size = cols * len(mask)
        right = sum(map(sum, mask)) == size - int(size * SPARSITY)
    return None if right else f"the mask does not keep what {pattern} allows"


def submit(server, fixture, folder, device, case, seconds):
    """(result, mask as rows, tensors of the file)"""
    name, pattern, flags = case
    path, out = fixture / f"{name}.safetensors", folder / "mask.safetensors"
    layer = Path(name).name
    inputs = ["--activations", "activations"] if "activations" in name else ["--gram", "gram"]
    said, _ = server.cli(
        "submit", "--weights", f"{path}:{layer}.weight", inputs[0], f"{path}:{inputs[1]}",
        "--pattern", pattern, *([] if ":" in pattern else ["--sparsity", SPARSITY]), *flags,
        "--device", device, "--out", out, "--overwrite", "--json", seconds=seconds)
    return json.loads(said), rows_of(*read_safetensors(out)["mask"]), read_safetensors(path)


def wrong_with(result, mask, tensors, case, device):
    """None, or what is wrong. The loss of the small layer is formed again."""
    name, pattern, _ = case
    losses = result["losses"]
    if result["state"] != "SUCCEEDED":
        return f"the job ended as {result['state']}"
    if result["device"] != device:
        return f"it ran on {result['device']}, not on {device}"
    if not losses["lower_bound"] <= losses["final"] <= losses["warm_start"]:
        return f"not bound <= loss <= that of the warm start: {losses}"
    counts = check_counts(mask, pattern)
    if counts or name != SMALL:
        return counts
    weight = next(tensor for key, tensor in tensors.items() if key.endswith(".weight"))
    again = loss(rows_of(*weight), rows_of(*tensors["gram"]), mask)
    if abs(losses["final"] / again - 1) <= LOSS_TOLERANCE:
        return None
    return f"the server says a loss of {losses['final']:.9g}; formed again it is {again:.9g}"


def _job(server, fixture, folder, device, case, seconds, item, compare):
    title = f"{Path(case[0]).name}, {case[1]}"
    try:
        result, mask, tensors = submit(server, fixture, folder, device, case, seconds)
        wrong = wrong_with(result, mask, tensors, case, server.device)
        found = result["losses"]["final"]
        words = f"loss {found:.6g}"
        if not wrong and compare and device != "cpu":
            other = submit(server, fixture, folder, "cpu", case, seconds)[0]["losses"]["final"]
            words += f", {other:.6g} on cpu"
            if not abs(found / other - 1) <= OTHER_DEVICE_TOLERANCE:
                wrong = f"loss {found:.6g} on {server.device}, {other:.6g} on cpu"
        item(title, not wrong, wrong or words, losses=result["losses"],
             iterations=result["iterations"], timings=result["timings"])
    except ProgramError as error:
        item(title, False, str(error))


def run(bin_folder, fixture, device, seconds, item, cases=CASES, compare=True, shared=None):
    """`compare`: every case also on the CPU engine of the same server. `shared`: a folder that
    the programs see under the same name."""
    end = time.monotonic() + seconds
    left = lambda: max(1.0, end - time.monotonic())  # noqa: E731
    with tempfile.TemporaryDirectory(prefix="sparsefw-gpu-check-", dir=shared) as name:
        folder = Path(name)
        try:
            server = ServerProgram(bin_folder, device, 4, folder, min(START_SECONDS, left()))
        except ProgramError as error:
            item("server", False, str(error))
            return
        try:
            item("server", server.device.startswith(device), f"runs on {server.device}")
            for case in cases:
                _job(server, fixture, folder, device, case, min(CASE_SECONDS, left()), item,
                     compare)
            if server.device.startswith("cuda"):
                found = [name for name, *_ in server.metrics(left()) if name.startswith("gpu_")]
                item("GPU metrics", True, f"{len(found) or 'none'}")
        except (ProgramError, OSError) as error:
            item("server", False, str(error))
        finally:
            code = server.close(min(DRAIN_SECONDS, left()))
            item("drain", code == 0, f"the server ended with status {code}")
