"""Shapes of the blocks of two models, and what they mean in weights, bytes and operations."""

import dataclasses

# Bytes of a value.
FLOAT64, FLOAT32, BFLOAT16 = 8, 4, 2


@dataclasses.dataclass(frozen=True)
class Model:
    """Blocks as in Llama: q, k, v, o, gate, up and down, with four Gram matrices."""

    name: str
    blocks: int
    width: int
    inner: int
    heads: int
    key_heads: int

    @property
    def matrices(self):
        """(Gram matrix, rows, columns)"""
        narrow = self.width // self.heads * self.key_heads
        return [
            ("qkv", self.width, self.width),
            ("qkv", narrow, self.width),
            ("qkv", narrow, self.width),
            ("o", self.width, self.width),
            ("gate", self.inner, self.width),
            ("gate", self.inner, self.width),
            ("down", self.width, self.inner),
        ]

    @property
    def grams(self):
        """(name, columns)"""
        return [("qkv", self.width), ("o", self.width), ("gate", self.width), ("down", self.inner)]

    @property
    def weights(self):
        """Weights of one block."""
        return sum(rows * columns for _, rows, columns in self.matrices)

    def gram_bytes(self, value):
        """By name, with so many bytes a value."""
        return {name: value * columns**2 for name, columns in self.grams}

    def forward_operations(self, tokens):
        """Operations on a sequence: products with the weights, and attention's with half of the pairs."""
        return 2 * self.weights * tokens + 2 * self.width * tokens**2

    def gram_operations(self, tokens, names=None):
        return sum(2 * tokens * columns**2 for name, columns in self.grams if names is None or name in names)


LLAMA_3_8B = Model("Llama-3-8B", 32, 4096, 14336, 32, 8)
LLAMA_3_70B = Model("Llama-3-70B", 80, 8192, 28672, 64, 8)
