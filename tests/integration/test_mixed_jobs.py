"""64 jobs of many kinds beside each other on the streams of two devices give what they give one
by one. The devices are the emulated ones of tests/cuda_on_host."""
import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from support import safetensors
from support.layers import Layer
from support.processes import BIN_DIR, Cli

EMULATED = BIN_DIR.parent / "tests/libsparsefw_cuda_module_on_host.so"
SHAPES = ((8, 16), (12, 40), (20, 32), (5, 72))
DTYPES = ("F32", "F16", "BF16", "F32")
PATTERNS = ("unstructured", "per-row", "2:4", "4:8")


def weights_file(layer, dtype):
    if dtype == "F32":
        return layer.weights_file
    weight = layer.weight.astype("<f2") if dtype == "F16" else safetensors.to_bf16(layer.weight)
    return safetensors.write(layer.folder / f"w-{dtype}.safetensors", {"layer.weight": weight})


def jobs(folder):
    """(name, arguments) of every shape, pattern and four kinds of work."""
    for (shape, dtype), pattern, kind in itertools.product(zip(SHAPES, DTYPES), PATTERNS, range(4)):
        name = f"{shape[0]}x{shape[1]}-{dtype}-{pattern.replace(':', 'of')}-{kind}"
        place = folder / name
        place.mkdir()
        layer = Layer(place, d_out=shape[0], d_in=shape[1], seed=100 + kind)
        more = (["--alpha", "0"], ["--step-rule", "line-search"], ["--swaps"],
                ["--method", "wanda", "--reconstruct"])[kind]
        if kind != 3:
            more = [*more, "--iterations", "15"]
        yield name, layer.submit("--weights", weights_file(layer, dtype), "--device", "cuda",
                                 "--json", *more, pattern=pattern), layer


def run(server, job):
    name, arguments, layer = job
    result = Cli(server.address).run(*arguments).expect(0).json()
    return name, result["device"], result["losses"], np.packbits(layer.mask()).tobytes()


def test_64_jobs_beside_each_other_give_what_they_give_alone(start_server, folder):
    server = start_server("--device", "cuda", "--streams-per-device", "4",
                          env={"SPARSEFW_CUDA_MODULE": str(EMULATED),
                               "SPARSEFW_CUDA_ON_HOST_DEVICES": "2"})
    work = list(jobs(folder))
    assert len(work) == 64
    alone = [run(server, job) for job in work]
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(lambda job: run(server, job), work))
    for one, other in zip(alone, together):
        assert (one[0], *one[2:]) == (other[0], *other[2:])
    assert {result[1] for result in together} == {"cuda:0", "cuda:1"}
