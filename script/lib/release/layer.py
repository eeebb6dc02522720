"""Usage: layer.py FOLDER
Writes FOLDER/layer.safetensors with a weight and a Gram matrix, without any package."""

import json
import random
import struct
import sys

ROWS, COLUMNS, TOKENS = 24, 32, 64
made = random.Random(1)
inputs = [[made.gauss(0, 1) for _ in range(COLUMNS)] for _ in range(TOKENS)]
weight = [made.gauss(0, 1) for _ in range(ROWS * COLUMNS)]
gram = [sum(x[i] * x[j] for x in inputs) for i in range(COLUMNS) for j in range(COLUMNS)]
sizes = {"weight": [ROWS, COLUMNS], "gram": [COLUMNS, COLUMNS]}
header, end = {}, 0
for name, shape in sizes.items():
    header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + 4 * shape[0] * shape[1]]}
    end = header[name]["data_offsets"][1]
text = json.dumps(header).encode()
with open(f"{sys.argv[1]}/layer.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + struct.pack(f"<{len(weight)}f", *weight)
               + struct.pack(f"<{len(gram)}f", *gram))
