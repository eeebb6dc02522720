"""Every family: all matrices pruned to their exact counts, with the inputs that the whole model gives them."""

import pytest
import sparsefw
import tiny
import torch
import transformers
from sparsefw.hf import prune_model
from sparsefw.hf.layout import dense_outside, layout_of
from support import reference


# Outside of the blocks, never pruned.
ENDS = ["model.embed_tokens.weight", "lm_head.weight"]


def prune(model, client, **options):
    options = {"sparsity": 0.5, "method": "wanda", "progress": False, **options}
    return prune_model(model, data=options.pop("data", tiny.tokens()), server=client, **options)


def check_losses(dense, pruned, report, ids, propagate=True, tolerance=2e-4):
    """Every loss is that on the inputs of the whole model, its earlier blocks pruned."""
    mixed = tiny.make_like(dense)
    for block in range(2):
        rows = [row for row in report.layers if f".{block}." in row["name"]]
        assert rows
        grams = tiny.reference_grams(mixed, [row["name"] for row in rows], ids)
        for row in rows:
            name = row["name"]
            old, new = tiny.matrix(dense, name), tiny.matrix(pruned, name)
            full = tiny.loss(old, torch.zeros_like(old), grams[name])
            assert row["losses"]["full"] == pytest.approx(full, rel=tolerance), name
            assert row["losses"]["final"] == pytest.approx(
                tiny.loss(old, new, grams[name]), rel=tolerance), name
            if propagate:
                tiny.matrix(mixed, name).copy_(new)


@pytest.mark.parametrize("pattern", ["per-row", "2:4"])
@pytest.mark.parametrize("family", tiny.CONFIGS)
def test_every_matrix_to_its_exact_count(client, family, pattern):
    dense, model = tiny.make(family), tiny.make(family)
    sparsity = 0.6 if pattern == "per-row" else None
    report = prune(model, client, pattern=pattern, sparsity=sparsity)
    assert len(report.layers) == 2 * tiny.MATRICES[family]
    named = {row["name"] for row in report.layers}
    for row in report.layers:
        kept = tiny.matrix(model, row["name"]) != 0
        reference.check_counts(kept.numpy(), pattern, sparsity)
        assert int(kept.sum()) == row["kept"]
    # Nothing else has changed.
    parameters = {tiny.split(name)[0] for name in named}
    for name, value in dense.named_parameters():
        if name not in parameters:
            assert torch.equal(value, model.get_parameter(name)), name
    kept = torch.cat([(tiny.matrix(model, name) == 0).flatten() for name in named]).double().mean()
    assert report.sparsity == pytest.approx(float(kept))


@pytest.mark.parametrize("family", tiny.CONFIGS)
def test_inputs_are_those_of_the_whole_model(client, family):
    dense, model = tiny.make(family), tiny.make(family)
    report = prune(model, client, sparsity=0.5)
    check_losses(dense, model, report, tiny.tokens())


@pytest.mark.parametrize("family", ["gemma3", "qwen3_moe"])
def test_inputs_of_the_dense_model(client, family):
    dense, model = tiny.make(family), tiny.make(family)
    report = prune(model, client, propagate=False, gram_memory=1)
    check_losses(dense, model, report, tiny.tokens(), propagate=False)


def test_layers_with_the_same_input_share_a_gram_matrix():
    model = tiny.make("llama")
    layout = layout_of(model)[0]
    from sparsefw.hf.calibration.capture import first_call
    from sparsefw.hf.calibration.grams import find_groups, split_passes

    block = model.model.layers[0]
    hidden, call = first_call(model, block, tiny.tokens()[:1])
    groups = find_groups(block, layout, hidden, call)
    names = [[matrix.module.rpartition(".")[2] for matrix in group.matrices] for group in groups]
    assert names == [["q_proj", "k_proj", "v_proj"], ["o_proj"], ["gate_proj", "up_proj"], ["down_proj"]]
    one = 2 * 8 * 32 * 32  # a sum, and the part that is added to it
    assert [len(some) for some in split_passes(groups, 3 * one)] == [3, 1]
    assert [len(some) for some in split_passes(groups, 1)] == [1, 1, 1, 1]


class CalledExperts(torch.nn.Module):
    """Every expert is called, also without tokens; a sample reaches one of them."""

    def __init__(self, width):
        super().__init__()
        self.experts = torch.nn.ModuleList(torch.nn.Linear(width, width, bias=False) for _ in range(3))

    def forward(self, hidden):
        chosen = int(hidden[0, 0].abs().sum() * 100) % 3
        out = torch.zeros_like(hidden)
        for index, expert in enumerate(self.experts):
            taken = hidden[:] if index == chosen else hidden[:0]
            out[: len(taken)] += expert(taken)
        return out


def test_experts_without_tokens_do_not_share_a_gram_matrix(client):
    """All empty tensors are at one address."""
    model = tiny.make("llama")
    grams = {}

    def count(module, args):
        tokens = args[0].flatten(0, -2)
        grams[module] += tokens.T @ tokens

    for layer in model.model.layers:
        layer.mlp = CalledExperts(32)
        for expert in layer.mlp.experts:
            grams[expert] = torch.zeros(32, 32)
            expert.register_forward_pre_hook(count)
    ids = tiny.tokens(count=6)
    with torch.no_grad():
        for one in ids:
            model(input_ids=torch.as_tensor(one).reshape(1, -1))
    wanted = [float((expert.weight @ gram * expert.weight).sum()) for expert, gram in grams.items()]
    report = prune_model(model, data=ids, server=client, sparsity=0.5, method="wanda", ignore=["self_attn"],
                         progress=False, propagate=False)
    found = [row["losses"]["full"] for row, full in zip(report.layers, wanted, strict=True) if full]
    assert found == pytest.approx([full for full in wanted if full], rel=1e-3)  # others have no tokens
    assert len(found) >= 4


@pytest.mark.parametrize("family", ["llama", "mixtral"])
def test_several_passes_give_the_same(client, family):
    once, often = tiny.make(family), tiny.make(family)
    prune(once, client)
    prune(often, client, gram_memory=2 * 2 * 8 * 32 * 32)
    for name, value in once.named_parameters():
        assert torch.equal(value, often.get_parameter(name)), name


def test_an_uncovered_matrix_is_refused_by_name(client):
    model = tiny.make("llama")
    layer = model.model.layers[1].mlp
    layer.adapter = torch.nn.Parameter(torch.ones(4, 8))
    with pytest.raises(sparsefw.InvalidArgument, match=r"model\.layers\.1\.mlp\.adapter \[4, 8\]") as raised:
        prune(model, client)
    assert raised.value.reason == "CLIENT_ARGUMENT"
    report = prune(model, client, ignore=["lm_head", r"\.adapter$"])
    assert report.dense == ["model.layers.1.mlp.adapter", *ENDS]
    assert bool((layer.adapter == 1).all())


def test_a_matrix_beside_the_blocks_is_refused_by_name(client):
    """OPT-350m has projections before and after its blocks."""
    model = tiny.make("opt", word_embed_proj_dim=16)
    with pytest.raises(
        sparsefw.InvalidArgument, match=r"decoder\.project_out\.weight.*decoder\.project_in\.weight"
    ) as raised:
        prune(model, client)
    assert raised.value.reason == "CLIENT_ARGUMENT"
    report = prune(model, client, ignore=[r"\.project_(in|out)\."])
    assert len(report.layers) == 2 * tiny.MATRICES["opt"]
    decoder = "model.decoder."
    assert sorted(report.dense) == sorted([
        f"{decoder}embed_tokens.weight", f"{decoder}embed_positions.weight", f"{decoder}project_in.weight",
        f"{decoder}project_out.weight", "lm_head.weight"])


def test_a_second_list_of_blocks_is_refused_by_name():
    model = tiny.make("llama")
    model.tower = torch.nn.ModuleList([torch.nn.Linear(32, 16, bias=False)])
    with pytest.raises(sparsefw.InvalidArgument, match=r"tower\.0\.weight \[16, 32\]"):
        layout_of(model)
    assert sum(len(block.matrices) for block in layout_of(model, [r"^tower"])) == 14


def test_what_is_tied_to_the_head_stays_dense():
    """Also where nothing is ignored: the head is never pruned."""
    model = tiny.make("llama", vocab_size=48)
    assert "lm_head.weight" in dense_outside(model)
    model.lm_head.weight = model.model.layers[0].mlp.up_proj.weight
    layout = layout_of(model)
    assert "model.layers.0.mlp.up_proj.weight" in layout[0].dense
    assert len(layout[0].matrices) == 6


def test_layers_of_a_block_with_one_weight_are_pruned_once(client):
    """Two masks on one memory would prune it twice."""
    model = tiny.make("llama")
    for block in model.model.layers:
        block.mlp.up_proj.weight = block.mlp.gate_proj.weight
    report = prune(model, client)
    assert [row["name"] for row in report.layers if "up_proj" in row["name"]] == []
    assert len(report.layers) == 2 * 6
    for row in report.layers:
        reference.check_counts((tiny.matrix(model, row["name"]) != 0).numpy(), "per-row", 0.5)


def test_ignored_matrices_stay_dense(client):
    dense, model = tiny.make("llama"), tiny.make("llama")
    report = prune(model, client, ignore=["down_proj", r"layers\.0\.self_attn"])
    assert len(report.layers) == 14 - 2 - 4
    for name in report.dense:
        assert torch.equal(model.get_parameter(name), dense.get_parameter(name))
    assert len(report.dense) == 6 + len(ENDS)
    with pytest.raises(sparsefw.InvalidArgument, match="nothing of Llama"):
        prune(tiny.make("llama"), client, ignore=["proj"])


def test_one_rule_to_ignore_is_no_letters(client):
    report = prune(tiny.make("llama"), client, ignore="down_proj")
    assert len(report.layers) == 2 * (tiny.MATRICES["llama"] - 1)
    assert not any("down_proj" in row["name"] for row in report.layers)
    assert report.settings["ignore"] == ["down_proj"]


@pytest.mark.parametrize(
    ("family", "router"),
    [("mixtral", "gate"), ("qwen3_moe", "gate"), ("hunyuan_v1_moe", "gate.wg"), ("afmoe", "router.gate")])
def test_routers_stay_dense_unless_asked(client, family, router):
    """Also where the layer is inside of the module that stands beside the experts."""
    dense, model = tiny.make(family), tiny.make(family)
    report = prune(model, client)
    routers = [name for name, _ in dense.named_parameters() if name.endswith(f"mlp.{router}.weight")]
    assert report.dense == routers + ENDS
    assert len(routers) == 2
    report = prune(tiny.make(family), client, routers=True)
    assert report.dense == ENDS
    assert len(report.layers) == 2 * (tiny.MATRICES[family] + 1)


def layout_of_config(config, routers=False, ignore=()):
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    layout = layout_of(model, ["lm_head", "conv_qk", *ignore], routers)
    return [name.partition(".layers.1.")[2] for name in layout[1].dense], len(layout[1].matrices)


def test_all_layers_of_a_router_are_its_own():
    """Zaya's experts have one more that does nothing. Gemma's are beside attention, whose keys have as many rows."""
    common = {**tiny.COMMON, "head_dim": 8, "moe_intermediate_size": 16}
    zaya = transformers.ZayaConfig(**common, num_key_value_heads=2, num_experts=4, router_hidden_size=8)
    gate = [f"mlp.gate.{name}.weight" for name in ("down_proj", "router_mlp.fc1", "router_mlp.fc2", "router_mlp.out_proj")]
    dense, matrices = layout_of_config(zaya)
    assert [name for name in dense if "conv_qk" not in name] == gate
    assert layout_of_config(zaya, routers=True)[1] == matrices + len(gate)
    gemma = transformers.Gemma4TextConfig(
        **common, num_key_value_heads=1, global_head_dim=8, intermediate_size=48, enable_moe_block=True, num_experts=8,
        top_k_experts=2, hidden_size_per_layer_input=0, num_kv_shared_layers=0)
    assert layout_of_config(gemma) == (["router.proj.weight"], 4 + 3 + 2 * 8)
    # As many experts as hidden values: attention and the MLP end in as many rows.
    gemma.num_experts = gemma.hidden_size
    assert layout_of_config(gemma) == (["router.proj.weight"], 4 + 3 + 2 * gemma.hidden_size)


def test_routers_that_know_the_number_of_experts_themselves():
    jet = transformers.JetMoeConfig(
        **tiny.COMMON, num_key_value_heads=2, kv_channels=8, intermediate_size=48, num_local_experts=4,
        num_experts_per_tok=2)
    experts = ("input_linear", "output_linear")
    dense, matrices = layout_of_config(jet, ignore=experts)
    routers = ["mlp.router.layer.weight", "self_attention.experts.router.layer.weight"]
    assert [name for name in dense if "router" in name] == routers
    assert layout_of_config(jet, True, experts)[1] == matrices + len(routers)
    assert matrices > 0


def test_an_expert_that_sees_no_token_is_pruned_by_magnitude(client):
    model = tiny.make("mixtral")
    dense = tiny.make_like(model)
    # The same token everywhere is the same everywhere: two of four experts get it.
    report = prune(model, client, reconstruct=True, data=torch.full((2, 8), 7))
    unseen = [row for row in report.layers if row["note"]]
    assert len(unseen) == 2 * 2 * 2
    assert all(row["tokens"] == 0 for row in unseen)
    for row in unseen:
        old, new = tiny.matrix(dense, row["name"]), tiny.matrix(model, row["name"])
        keep = old.abs() >= old.abs().sort(dim=1).values[:, old.shape[1] // 2 : old.shape[1] // 2 + 1]
        assert torch.equal(new, old * keep)
    assert "by magnitude" in str(report)


def test_a_block_used_twice_is_pruned_once(client):
    model = tiny.make("llama")
    model.model.layers[1] = model.model.layers[0]
    report = prune(model, client)
    assert len(report.layers) == 7
    for row in report.layers:
        reference.check_counts((tiny.matrix(model, row["name"]) != 0).numpy(), "per-row", 0.5)


def test_a_block_that_needs_others_is_refused(client):
    """Its calls cannot be known without running those before it."""
    model = tiny.make("llama")
    forward = model.model.forward
    layers = model.model.layers

    def with_memory(*args, **arguments):
        memory = {}
        handles = [
            layers[0].register_forward_hook(lambda _, args, out: memory.update(bias=out.sum())),
            layers[1].register_forward_pre_hook(
                lambda _, args, named: (args, {**named, "bias": memory["bias"]}), with_kwargs=True)]
        try:
            return forward(*args, **arguments)
        finally:
            for handle in handles:
                handle.remove()

    model.model.forward = with_memory
    with pytest.raises(sparsefw.InvalidArgument, match=r'"bias" of block 1 depends on the blocks before it'):
        prune(model, client)


@pytest.mark.skipif(not hasattr(transformers, "Gemma4TextConfig"), reason="this transformers has no Gemma 4")
def test_blocks_that_share_keys_and_values_are_refused(client):
    """They fill a mapping that all blocks get, which is no dict."""
    config = transformers.Gemma4TextConfig(
        **{**tiny.COMMON, "num_hidden_layers": 4}, num_key_value_heads=2, intermediate_size=48, head_dim=8,
        layer_types=["sliding_attention", "full_attention"] * 2, sliding_window=8, max_position_embeddings=64,
        hidden_size_per_layer_input=8, vocab_size_per_layer_input=128, num_kv_shared_layers=2)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with pytest.raises(sparsefw.InvalidArgument, match=r'of block \d depends on the blocks before it'):
        prune(model, client, ignore=["per_layer"])


def test_new_weights_are_written(client):
    dense, model = tiny.make("gpt2"), tiny.make("gpt2")
    report = prune(model, client, method="sparsegpt")
    for row in report.layers:
        new = tiny.matrix(model, row["name"])
        reference.check_counts((new != 0).numpy(), "per-row", 0.5)
        assert not torch.equal(new, tiny.matrix(dense, row["name"]) * (new != 0))


def test_an_encoder(client):
    torch.manual_seed(1)
    model = transformers.BertForMaskedLM(transformers.BertConfig(**tiny.COMMON, intermediate_size=48)).train()
    with pytest.raises(sparsefw.InvalidArgument, match=r"cls\.predictions\.transform\.dense\.weight \[32, 32\]"):
        prune(model, client)
    report = prune(model, client, ignore=[r"^cls\."])
    assert len(report.layers) == 12
    assert "cls.predictions.transform.dense.weight" in report.dense
    assert "bert.embeddings.position_embeddings.weight" in report.dense
    assert model.training


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sparsity": None}, "needs sparsity"),
        ({"pattern": "2:4", "sparsity": 0.6}, "its own sparsity, 0.5; got sparsity=0.6"),
        ({"gram": "here"}, "gram must be"),
        ({"steps": 5}, "no option steps"),
        ({"labels": {"a": "b"}}, "sets labels itself"),
        ({"ignore": ["("]}, "no regular expression"),
        ({"data": []}, "at least one text"),
        ({"data": "words"}, "need a tokenizer"),
        ({"data": [1]}, "at least two tokens"),
        ({"sequence_length": 1}, "sequence_length must be"),
        ({"allocation": "fair"}, "allocation must be"),
        ({"allocation": ["owl"]}, r"allocation must be .*; got \['owl'\]"),
        ({"server": []}, "at least one server"),
    ],
)
def test_wrong_arguments(client, options, words):
    arguments = {"data": tiny.tokens(), "server": client, "sparsity": 0.5, "progress": False, **options}
    with pytest.raises(sparsefw.InvalidArgument, match=words):
        prune_model(tiny.make("llama"), **arguments)
