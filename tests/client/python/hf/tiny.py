"""Tiny random language models of every family, and what their layers are compared with."""

import contextlib

import torch
import transformers

COMMON = {"vocab_size": 128, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
# Large enough that activations are far from linear and every layer matters.
SPREAD = 0.2

CONFIGS = {
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=128, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=0, eos_token_id=0,
        initializer_range=SPREAD),
    "opt": lambda: transformers.OPTConfig(
        vocab_size=128, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=64,
        word_embed_proj_dim=32, max_position_embeddings=64, init_std=SPREAD),
    "llama": lambda: transformers.LlamaConfig(
        **COMMON, num_key_value_heads=2, intermediate_size=48, max_position_embeddings=64,
        initializer_range=SPREAD, tie_word_embeddings=True),
    "gemma3": lambda: transformers.Gemma3TextConfig(
        **COMMON, num_key_value_heads=2, intermediate_size=48, head_dim=8, sliding_window=8,
        layer_types=["sliding_attention", "full_attention"], max_position_embeddings=64,
        initializer_range=SPREAD),
    "mixtral": lambda: transformers.MixtralConfig(
        **COMMON, num_key_value_heads=2, intermediate_size=48, num_local_experts=4,
        max_position_embeddings=64, initializer_range=SPREAD),
    "qwen3_moe": lambda: transformers.Qwen3MoeConfig(
        **COMMON, num_key_value_heads=2, intermediate_size=48, moe_intermediate_size=16, num_experts=4,
        num_experts_per_tok=2, head_dim=8, max_position_embeddings=64, initializer_range=SPREAD),
    "hunyuan_v1_moe": lambda: transformers.HunYuanMoEV1Config(
        **COMMON, num_key_value_heads=2, intermediate_size=16, num_experts=4, moe_topk=2, head_dim=8,
        max_position_embeddings=64, initializer_range=SPREAD),
    "afmoe": lambda: transformers.AfmoeConfig(
        **COMMON, num_key_value_heads=2, intermediate_size=48, moe_intermediate_size=16, num_experts=4,
        num_experts_per_tok=2, num_shared_experts=1, num_dense_layers=0, head_dim=8, sliding_window=8,
        max_position_embeddings=64, initializer_range=SPREAD),
}
MATRICES = {"gpt2": 4, "opt": 6, "llama": 7, "gemma3": 7, "mixtral": 4 + 2 * 4, "qwen3_moe": 4 + 2 * 4,
            "hunyuan_v1_moe": 4 + 3 + 2 * 4, "afmoe": 5 + 3 + 2 * 4}


def make(family, seed=3, dtype=torch.float32, **changes):
    print(f"{family} seed {seed}")
    torch.manual_seed(seed)
    config = CONFIGS[family]()
    for name, value in changes.items():
        setattr(config, name, value)
    model = transformers.AutoModelForCausalLM.from_config(config).to(dtype).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1 and not name.endswith("bias"):
                parameter.mul_(1 + 0.3 * torch.randn_like(parameter))
            elif parameter.dim() > 1 and not parameter.any():  # AFMoE's routers: all tokens had the same experts
                parameter.normal_(std=SPREAD)
    return model


def tokens(count=6, length=24, seed=5):
    return torch.randint(0, 128, (count, length), generator=torch.Generator().manual_seed(seed))


def split(name):
    """(parameter, expert or None) of a matrix's name."""
    parameter, _, expert = name.partition("[")
    return parameter, int(expert[:-1]) if expert else None


def matrix(model, name):
    """[d_out, d_in] of a matrix by its name in a report."""
    parameter, expert = split(name)
    value = model.get_parameter(parameter).detach()
    if expert is not None:
        return value[expert]
    owner = model.get_submodule(parameter.rpartition(".")[0])
    return value.T if type(owner).__name__ == "Conv1D" else value


@contextlib.contextmanager
def eager_experts(model):
    before = model.config._experts_implementation
    model.config._experts_implementation = "eager"
    try:
        yield
    finally:
        model.config._experts_implementation = before


class Inputs(torch.overrides.TorchFunctionMode):
    """Sums x x^T in float64 of whatever multiplies a parameter, by the parameter's memory."""

    def __init__(self, model, names):
        super().__init__()
        self.grams = {}
        self.where = {matrix(model, name).data_ptr(): name for name in names}

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in (torch.nn.functional.linear, torch.addmm):
            values = args if function is torch.nn.functional.linear else args[1:]
            name = self.where.get(values[1].data_ptr())
            if name:
                x = values[0].detach().reshape(-1, values[0].shape[-1]).double()
                self.grams[name] = self.grams.get(name, 0) + x.T @ x
        return function(*args, **(kwargs or {}))


def reference_grams(model, names, ids):
    """The Gram matrices of matrices in the whole model as it is, one sequence at a time."""
    with eager_experts(model), torch.no_grad(), Inputs(model, names) as seen:
        for sequence in ids:
            model(input_ids=sequence[None], use_cache=False)
    return seen.grams


def loss(weight, pruned, gram):
    difference = (weight.double() - pruned.double())
    return float(((difference @ gram) * difference).sum())


def same(one, other):
    """Whether all parameters have the same bits."""
    return all(torch.equal(value, other.get_parameter(name)) for name, value in one.named_parameters())


def make_like(model):
    """The same model once more."""
    import copy

    return copy.deepcopy(model)
