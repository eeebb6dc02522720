"""Layers and options of the jobs, and the masks that an undisturbed server finds for them."""
import dataclasses

import numpy as np

from support import safetensors
from support.layers import Layer
from support.processes import Cli, Server
from support.rpc import job_pb2


@dataclasses.dataclass
class Variant:
    layer: Layer
    flags: tuple
    from_activations: bool = False
    mask: bytes = b""  # expected, packed as on the wire

    def arguments(self, out):
        inputs = ("--activations", self.layer.activations_file) if self.from_activations \
            else ("--gram", self.layer.gram_file)
        return ["submit", "--weights", self.layer.weights_file, *inputs, *self.flags, "--out", out, "--overwrite"]

    def spec(self, weight, gram):
        """The same job as a JobSpec."""
        flags = dict(zip(self.flags[::2], self.flags[1::2]))
        spec = job_pb2.JobSpec(weight=weight, gram=gram, method=job_pb2.METHOD_SPARSEFW)
        spec.sparsefw.iterations = int(flags["--iterations"])
        spec.sparsefw.report_every = int(flags["--report-every"])
        pattern, sparsity = flags["--pattern"], float(flags.get("--sparsity", 0))
        if ":" in pattern:
            spec.pattern.nm.keep, spec.pattern.nm.group = map(int, pattern.split(":"))
        elif pattern == "per-row":
            spec.pattern.per_row.sparsity = sparsity
        else:
            spec.pattern.unstructured.sparsity = sparsity
        return spec


def packed(path):
    """The mask of a file as the bytes of a U1 tensor: rows padded to whole bytes, lowest bit
    first."""
    tensors, _ = safetensors.read(path)
    return np.packbits(tensors["mask"], axis=1, bitorder="little").tobytes()


def make_small(folder):
    """Variants of a small layer: two that are done in a moment, one that takes part of a second,
    and one that takes seconds."""
    small = _layer(folder, "small", 32, 48, 1)
    return _solved(folder, [Variant(small, _flags("unstructured", 500, 100)),
                            Variant(small, _flags("2:4", 500, 100), from_activations=True),
                            Variant(small, _flags("unstructured", 30000, 500)),
                            Variant(small, _flags("per-row", 600000, 2000))])


def make(folder):
    """Milliseconds to some seconds of work each; most are quick."""
    small, wide, large = (_layer(folder, "small", 48, 64, 1), _layer(folder, "wide", 96, 256, 2),
                          _layer(folder, "large", 384, 384, 3))
    quick = [Variant(small, _flags("unstructured", 2000, 100)),
             Variant(small, _flags("2:4", 2000, 100), from_activations=True)]
    return _solved(folder, [
        *quick, *[dataclasses.replace(one) for one in 4 * quick],
        Variant(wide, _flags("per-row", 4000, 200)),
        Variant(wide, _flags("unstructured", 3000, 200), from_activations=True),
        Variant(large, _flags("unstructured", 8000, 100)),
        Variant(large, _flags("2:4", 8000, 100))])


def _layer(folder, name, *shape):
    (folder / name).mkdir()
    return Layer(folder / name, *shape)


def _flags(pattern, iterations, every):
    sparsity = () if ":" in pattern else ("--sparsity", "0.6")
    return ("--pattern", pattern, *sparsity, "--iterations", str(iterations),
            "--report-every", str(every))


def _solved(folder, variants):
    """The same with the masks that an undisturbed server finds."""
    server = Server(folder / "small", "--workers", "2")
    try:
        for number, variant in enumerate(variants):
            out = folder / f"expected{number}.safetensors"
            Cli(server.address).run(*variant.arguments(out)).expect(0)
            variant.mask = packed(out)
        assert server.stop() == 0
    finally:
        server.close()
    return variants
