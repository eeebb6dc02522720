"""Made-up layers with correlated inputs, and the files that describe them."""
import numpy as np

from support import safetensors

ENDLESS = ("--method", "sparsefw", "--iterations", str(10**12), "--report-every", "200")
# Endless, and never gets further for the server: no report.
QUIET = ("--method", "sparsefw", "--iterations", str(10**12), "--report-every", str(10**12))


class Layer:
    def __init__(self, folder, d_out, d_in, seed, tokens=200):
        print(f"layer seed {seed}")
        random = np.random.default_rng(seed)
        self.folder = folder
        self.weight = random.standard_normal((d_out, d_in)).astype("<f4")
        mixing = random.standard_normal((d_in, d_in)) / np.sqrt(d_in) + np.eye(d_in)
        self.activations = (random.standard_normal((tokens, d_in)) @ mixing).astype("<f4")
        inputs = self.activations.astype(np.float64)
        self.gram = (inputs.T @ inputs).astype("<f4")
        self.weights_file = safetensors.write(folder / "w.safetensors", {"layer.weight": self.weight})
        self.gram_file = safetensors.write(folder / "g.safetensors", {"gram": self.gram})
        self.activations_file = safetensors.write(folder / "x.safetensors",
                                                  {"activations": self.activations})
        self.mask_file = folder / "mask.safetensors"

    def submit(self, *flags, pattern="per-row", out=True):
        """Arguments of `submit`; a flag given here replaces its default."""
        defaults = {"--weights": self.weights_file, "--gram": self.gram_file, "--pattern": pattern}
        if ":" not in pattern:
            defaults["--sparsity"] = "0.6"
        if out:
            defaults["--out"] = self.mask_file
            flags = ("--overwrite", *flags)  # of an earlier job of the test
        kept = [part for pair in defaults.items() if pair[0] not in flags for part in pair]
        return ["submit", *kept, *flags]

    def mask(self):
        tensors, _ = safetensors.read(self.mask_file)
        return tensors["mask"]
