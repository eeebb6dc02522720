"""Commands of the program `sparsefw` about whole models; PyTorch is imported when one runs."""

from __future__ import annotations

import argparse
import contextlib
import json
from pathlib import Path
from typing import Any

from sparsefw._commands import check_picture, load
from sparsefw._commands.outputs import check_model_outputs
from sparsefw._text import printable
from sparsefw.client import connect
from sparsefw.errors import invalid


def _models() -> Any:
    return load("sparsefw.hf", "hf")


def read_text(path: str) -> str:
    """Raises InvalidArgument (CLIENT_ARGUMENT) where the file cannot be read, or is no text."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise invalid(f"{path}: cannot be read: {why}") from None


def _texts(path: str) -> list[str]:
    """What the file holds, as a list: a text alone could be taken for the name of another file."""
    text = read_text(path)
    if not text.strip():
        raise invalid(f"{path}: must hold text; it is empty")
    return [text]


def _check_sparsity(sparsity: float | None) -> None:
    """Before a server is looked for and a folder of the run is made."""
    if sparsity is None or 0 <= sparsity <= 1:
        return
    hint = f"; {sparsity:g} % is {sparsity / 100:g}" if 1 < sparsity <= 100 else ""
    raise invalid(f"--sparsity must be in [0, 1]; got {sparsity:g}{hint}")


def _add_data_flags(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "model", metavar="MODEL", help="folder of a transformers model, or ORG/NAME on the hub"
    )
    parser.add_argument("--data", required=True, metavar="FILE.txt", help=f"{what} text, UTF-8")
    parser.add_argument("--sequence-length", type=int, default=2048, metavar="TOKENS")
    parser.add_argument("--quiet", "-q", action="store_true", help="no progress")
    parser.add_argument("--json", action="store_true", help="print one object")


def _add_pruning_flags(parser: argparse.ArgumentParser) -> None:
    """What both commands prune the model with."""
    parser.add_argument("--samples", type=int, default=128, help="sequences of calibration text")
    parser.add_argument(
        "--seed", type=int, metavar="N", help="draw them at random; else they are spread over the text"
    )
    parser.add_argument(
        "--state", metavar="DIR", help="what is finished; the same command goes on from there"
    )
    parser.add_argument(
        "--pattern", default="per-row", help="per-row, unstructured or K:N, which keeps K of N"
    )
    parser.add_argument("--sparsity", type=float, help="share to remove")
    parser.add_argument("--method", help="sparsefw, sparsegpt, alps, ria, wanda, magnitude")
    parser.add_argument("--warm-start", choices=["wanda", "ria", "magnitude"])
    parser.add_argument("--alpha", type=float)
    parser.add_argument("--iterations", type=int)
    parser.add_argument("--step-rule", choices=["open-loop", "line-search", "auto"])
    parser.add_argument(
        "--shrinkage",
        type=float,
        metavar="S",
        help="reduces the correlations of the inputs by this share; better with few samples",
    )
    parser.add_argument(
        "--preset",
        choices=["paper", "fast", "balanced", "best"],
        help="balanced, unless a method, an option of one, --refine-blocks or --distill is given",
    )
    for name in ("swaps", "reconstruct", "joint"):
        parser.add_argument(f"--{name}", action="store_true", default=None)
    parser.add_argument(
        "--refine-blocks",
        action=argparse.BooleanOptionalAction,
        help="after a block is pruned, train its kept weights towards the dense block's output; unless "
        "given, as the preset has it",
    )
    parser.add_argument("--refine-epochs", type=int, metavar="N", help="passes over the samples")
    parser.add_argument("--refine-rate", type=float, metavar="RATE", help="largest step of a weight")
    parser.add_argument(
        "--distill",
        action=argparse.BooleanOptionalAction,
        help="at the end, train all kept weights towards what the dense model predicts, all of it in memory; "
        "unless given, as the preset has it",
    )
    parser.add_argument("--distill-epochs", type=int, metavar="N", help="passes over the samples")
    parser.add_argument("--distill-rate", type=float, metavar="RATE", help="largest step of a weight")
    parser.add_argument(
        "--allocation",
        default="uniform",
        choices=["uniform", "loss-curve", "owl"],
        help="how the sparsity is divided among the matrices",
    )
    parser.add_argument(
        "--ignore", action="append", metavar="REGEX", help="parameters that stay dense; may be repeated"
    )
    parser.add_argument(
        "--no-propagate", action="store_true", help="every block sees the dense model's inputs"
    )
    parser.add_argument(
        "--candidate",
        action="append",
        metavar="JSON",
        help='settings to try, at least two: \'{"preset": "best", "refine_blocks": true}\', and {} for '
        "those of the command line; the model's loss on held-back text chooses",
    )
    parser.add_argument("--tune-blocks", type=int, metavar="N", help="blocks that candidates prune")
    parser.add_argument("--torch-device", metavar="DEVICE", help="of the activations: cpu, cuda, cuda:1")
    parser.add_argument("--report", metavar="FILE.json", help="also write the report here")
    group = parser.add_argument_group("server")
    group.add_argument(
        "--server",
        action="append",
        metavar="HOST:PORT",
        help='may be repeated: layers are divided among them; "auto" (the default) starts one; "ray" or '
        '"ray:HOST:PORT" is a Ray cluster',
    )
    group.add_argument("--ray-cpus", type=int, metavar="N", help="cores of a worker on Ray")
    group.add_argument("--ray-gpus", type=int, metavar="N", help="GPUs of a worker on Ray: 0 or 1")
    group.add_argument("--ray-workers", type=int, metavar="N", help="workers on Ray, at most")
    group.add_argument("--token-file", metavar="FILE", help="or the token in SPARSEFW_TOKEN")
    group.add_argument("--tls-ca", metavar="FILE", help="or SPARSEFW_TLS_CA; connects by TLS")
    group.add_argument("--tls-cert", metavar="FILE")
    group.add_argument("--tls-key", metavar="FILE")


def add_prune_model(commands: Any) -> None:
    """`sparsefw prune-model`."""
    parser = commands.add_parser(
        "prune-model",
        help="prune a Hugging Face model block by block",
        epilog="The option names of wanda's main.py are understood, too: --model, --prune_method, "
        "--sparsity_ratio, --sparsity_type, --nsamples, --seed, --save_model; --data FILE.txt is the text.",
    )
    _add_data_flags(parser, "calibration")
    parser.add_argument("--out", required=True, metavar="OUT", help="folder for the pruned model")
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace a pruned model in OUT, and the files of --report and --plot; with --state the same run "
        "may do so without it",
    )
    _add_pruning_flags(parser)
    parser.add_argument("--plot", metavar="FILE.png", help="draw it; needs matplotlib")
    parser.set_defaults(run=_prune_model)


def add_tune(commands: Any) -> None:
    """`sparsefw tune`."""
    parser = commands.add_parser("tune", help="try settings on the first blocks of a Hugging Face model")
    _add_data_flags(parser, "calibration")
    _add_pruning_flags(parser)
    parser.add_argument("--overwrite", action="store_true", help="replace the file of --report")
    parser.set_defaults(run=_tune)


def _servers(arguments: argparse.Namespace, stack: contextlib.ExitStack) -> Any:
    of_ray = {"cpus": arguments.ray_cpus, "gpus": arguments.ray_gpus, "workers": arguments.ray_workers}
    of_ray = {key: value for key, value in of_ray.items() if value is not None}
    named = arguments.server or ["auto"]
    if any(server.partition(":")[0] == "ray" for server in named):
        if len(named) > 1:
            raise invalid("--server ray cannot be one of several")
        for name in ("token_file", "tls_ca", "tls_cert", "tls_key"):
            if getattr(arguments, name):
                flag = name.replace("_", "-")
                raise invalid(f"--{flag} is for servers; a Ray cluster has RAY_AUTH_MODE=token")
        return _models().Ray(address=named[0].partition(":")[2] or None, **of_ray)
    if of_ray:
        raise invalid(f"--ray-{next(iter(of_ray))} needs --server ray")
    token = read_text(arguments.token_file).strip() if arguments.token_file else None
    return [
        stack.enter_context(
            connect(
                server,
                token=token,
                tls_ca=arguments.tls_ca,
                tls_cert=arguments.tls_cert,
                tls_key=arguments.tls_key,
            )
        )
        for server in named
    ]


def _steps(
    kind: str, asked: bool | None, epochs: int | None, rate: float | None, of_preset: bool, rule: str
) -> Any:
    """refine_blocks or distill of prune_model.

    Args:
        kind:      the class of the settings.
        asked:     of the flag; None: it was not given.
        of_preset: the preset may take such steps.
        rule:      what settings need.
    """
    given = {"epochs": epochs, "learning_rate": rate}
    given = {key: value for key, value in given.items() if value is not None}
    if given and not (of_preset if asked is None else asked):
        raise invalid(rule)
    if given:
        getattr(_models(), kind)(**given)  # wrong values are named before a server is looked for
    return given or asked


def _refinement(arguments: argparse.Namespace) -> Any:
    rule = "--refine-epochs and --refine-rate need --refine-blocks or a --preset that refines"
    epochs, rate = arguments.refine_epochs, arguments.refine_rate
    refines = arguments.preset in ("fast", "balanced", "best")
    return _steps("BlockRefinement", arguments.refine_blocks, epochs, rate, refines, rule)


def _distillation(arguments: argparse.Namespace) -> Any:
    rule = "--distill-epochs and --distill-rate need --distill or --preset best"
    epochs, rate = arguments.distill_epochs, arguments.distill_rate
    return _steps("Distillation", arguments.distill, epochs, rate, arguments.preset == "best", rule)


def _candidates(arguments: argparse.Namespace) -> list[Any]:
    found = []
    for text in arguments.candidate or []:
        try:
            found.append(json.loads(text))
        except ValueError as error:
            raise invalid(f"--candidate must be JSON; got {text}: {error}") from None
    if arguments.tune_blocks is not None and not found:
        raise invalid("--tune-blocks needs --candidate")
    return found


_OPTIONS = (
    "method",
    "warm_start",
    "alpha",
    "iterations",
    "step_rule",
    "shrinkage",
    "preset",
    "swaps",
    "reconstruct",
    "joint",
)


def _pruning(arguments: argparse.Namespace, stack: contextlib.ExitStack) -> dict[str, Any]:
    """The arguments that prune_model and tune have in common."""
    _check_sparsity(arguments.sparsity)
    return {
        "refine_blocks": _refinement(arguments),  # before a server is looked for
        "distill": _distillation(arguments),
        "data": _texts(arguments.data),
        "sparsity": arguments.sparsity,
        "pattern": arguments.pattern,
        "server": _servers(arguments, stack),
        "ignore": ["lm_head", *(arguments.ignore or [])],
        "propagate": not arguments.no_propagate,
        "samples": arguments.samples,
        "sequence_length": arguments.sequence_length,
        "seed": arguments.seed,
        "allocation": arguments.allocation,
        "state_dir": arguments.state,
        "progress": not arguments.quiet,
        "device": arguments.torch_device,
        **{key: getattr(arguments, key) for key in _OPTIONS},
    }


def _tune(arguments: argparse.Namespace) -> int:
    check_model_outputs(arguments)
    models = _models()
    candidates = _candidates(arguments)
    with contextlib.ExitStack() as stack:
        found = models.tune(
            arguments.model,
            candidates=candidates,
            blocks=arguments.tune_blocks,
            **_pruning(arguments, stack),
        )
    try:
        print(json.dumps(found.to_dict(), allow_nan=False) if arguments.json else found)
    finally:  # neither is lost with the other
        if arguments.report:
            found.save(arguments.report)
    return 0


def _prune_model(arguments: argparse.Namespace) -> int:
    check_model_outputs(arguments)
    models = _models()
    if arguments.plot:
        check_picture("--plot", arguments.plot)
    candidates = _candidates(arguments)
    tuning = models.Tuning(candidates, arguments.tune_blocks) if candidates else None
    with contextlib.ExitStack() as stack:
        report = models.prune_model(
            arguments.model,
            out=arguments.out,
            overwrite=arguments.overwrite,
            tune=tuning,
            **_pruning(arguments, stack),
        )
    try:
        if arguments.json:
            print(json.dumps(report.to_dict()))
        else:
            print(report)
            print(
                f"removed {report.sparsity:.3%} of {len(report.layers)} matrices in {report.seconds:.1f} s: "
                f"{printable(str(report.out))}"
            )
    finally:  # neither is lost with the other
        if arguments.report:
            report.save(arguments.report)
        if arguments.plot:
            report.plot(arguments.plot)
    return 0


def add_eval_perplexity(commands: Any) -> None:
    """`sparsefw eval-perplexity`."""
    parser = commands.add_parser("eval-perplexity", help="perplexity of a language model over a text")
    _add_data_flags(parser, "held-out")
    parser.add_argument("--samples", type=int, help="windows, spread evenly; all unless given")
    parser.set_defaults(run=_eval_perplexity)


def _eval_perplexity(arguments: argparse.Namespace) -> int:
    models = _models()
    text = _texts(arguments.data)
    folder = Path(arguments.model)
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise invalid(f"{arguments.model}: has no config.json; it must be a folder of transformers")
    found = models.evaluate_perplexity(
        arguments.model,
        data=text,
        sequence_length=arguments.sequence_length,
        samples=arguments.samples,
        progress=not arguments.quiet,
    )
    if arguments.json:
        print(json.dumps(found.to_dict(), allow_nan=False))
    else:
        print(found)
    return 0
