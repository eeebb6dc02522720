"""A second language model: no other is in a package.

A Llama of six layers (256 inputs, 704 in the MLP) over bytes, trained here for some ten minutes on the
calibration articles.
"""

import math
import shutil

import inputs
import torch
import transformers

STEPS, BATCH, LENGTH, RATE = 1500, 8, 512, 2e-3


def tokenizer(text, **_):
    """A token a byte."""
    return {"input_ids": list(text.encode())}


def model_folder(folder):
    """The model as a plain folder of transformers; its weights are made once."""
    out = folder / "byte-model"
    if not out.exists():
        partial = folder / "byte-model.partial"
        shutil.rmtree(partial, ignore_errors=True)
        train(inputs.texts(folder)["calibration"]).save_pretrained(partial)
        partial.rename(out)
    return out


def train(text):
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=256, hidden_size=256, intermediate_size=704, num_hidden_layers=6,
            num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=LENGTH))
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.05)
    ids = torch.tensor(tokenizer(text)["input_ids"])
    generator = torch.Generator().manual_seed(0)
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / 50) * (1 + math.cos(math.pi * step / STEPS)) / 2
        starts = torch.randint(len(ids) - LENGTH, (BATCH,), generator=generator)
        batch = torch.stack([ids[start:start + LENGTH] for start in starts])
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 100 == 0:
            print(f"byte model: step {step}/{STEPS}, perplexity {math.exp(loss.item()):.2f}", flush=True)
    return model
