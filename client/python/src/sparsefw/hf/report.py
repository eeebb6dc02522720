"""What was pruned, how well, and how long it took."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import re
from pathlib import Path
from typing import Any, Final

from sparsefw._files import atomically
from sparsefw._inputs.packages import needed, new_figure, save_figure
from sparsefw._text import printable
from sparsefw.hf.presets import PRESETS
from sparsefw.hf.values import finite

# The bound holds for masks that keep what was fixed from the start (alpha), not for all.
CERTIFICATE: Final = "share of the mask's loss that no mask with the same fixed weights can avoid"


@dataclasses.dataclass
class Report:
    """The report of one run of `prune_model`.

    Attributes:
        settings: the arguments that decide the outcome.
        versions: of the packages and servers that made the results; where a run went on with others, all of
                  them, with the blocks that each made.
        layers:   one dictionary a matrix: name, shape, method, pattern, kept, sparsity, tokens, losses
                  (as sparsefw.Losses), iterations, swaps, seconds, device, parts, note.
        dense:    matrices that stay dense on purpose: in blocks (routers, what was ignored), then outside
                  (embeddings, the head).
        seconds:  of the whole run; one that was resumed counts its last part.
        out:      the folder that was written, or None.
        curves:   with allocation="loss-curve": the loss curve of every matrix.
        outliers: with allocation="owl": the share of outliers of every block.
        refinements: with refine_blocks: one dictionary a block: name, and what
                  sparsefw.hf.training.refine.refine_block returns.
        tuning:   with tune: what sparsefw.hf.Tuned has.
        distillation: with distill: what sparsefw.hf.training.distill.distill returns.
        cluster:  on Ray: "nodes" (address, processor, pytorch, workers, jobs, seconds, gram_bytes,
                  gram_copies, gram_seconds of each, and "calibration": tasks, seconds and bytes read by
                  kind of task, such as "forward" and "refine"), "sent" (bytes that the driver put into the
                  object store, by kind), "waited" (its seconds, by what for), "lost_workers", "retries".
    """

    settings: dict[str, Any]
    versions: dict[str, Any]
    layers: list[dict[str, Any]]
    dense: list[str]
    seconds: float
    out: str | None = None
    curves: dict[str, Any] | None = None
    outliers: dict[str, float] | None = None
    refinements: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    tuning: dict[str, Any] | None = None
    distillation: dict[str, Any] | None = None
    cluster: dict[str, Any] | None = None

    @property
    def sparsity(self) -> float:
        """Share of the weights of all pruned matrices that is removed."""
        size: int = sum(row["shape"][0] * row["shape"][1] for row in self.layers)
        kept: int = sum(row["kept"] for row in self.layers)
        return 1 - kept / size

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary a matrix.

        loss: of what was written, as a share of pruning everything; warm_start: likewise. Both with G
        itself, whatever the shrinkage. reduction: 1 - loss / warm_start. certificate: lower bound / final
        loss of the mask, 1 = the best with these fixed weights; 0 of methods that have none.
        """
        rows = []
        for layer in self.layers:
            losses = layer["losses"]
            new = losses["reconstructed"]
            result = losses["final"] if new is None else new
            shown = losses.get("unshrunk") or {**losses, "result": result}
            full, last = shown["full"] or 1.0, shown["result"]
            rows.append(
                {
                    "name": layer["name"],
                    "type": layer_type(layer["name"]),
                    "block": block_of(layer["name"]),
                    "shape": "x".join(map(str, layer["shape"])),
                    "weights": layer["shape"][0] * layer["shape"][1],
                    "method": layer["method"],
                    "pattern": layer["pattern"],
                    "sparsity": layer["sparsity"],
                    "kept": layer["kept"],
                    "tokens": layer["tokens"],
                    "loss": last / full,
                    "warm_start": shown["warm_start"] / full,
                    "reduction": 1 - last / shown["warm_start"] if shown["warm_start"] else 0.0,
                    "certificate": losses["lower_bound"] / losses["final"] if losses["final"] else 1.0,
                    "seconds": layer["seconds"],
                    "note": layer["note"],
                }
            )
        return rows

    def to_pandas(self) -> Any:
        """`rows` as a pandas.DataFrame; pandas must be installed."""
        return needed("pandas", "pandas").DataFrame(self.rows())

    def to_dict(self) -> dict[str, Any]:
        """For JSON, which has no numbers that are not finite: they are None."""
        return dict(finite(dataclasses.asdict(self)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes JSON."""
        with atomically(Path(path)) as file:
            file.write((json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n").encode())

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draws the reduction of the local loss by block and type of matrix; needs matplotlib."""
        figure, axes = new_figure()
        lines: dict[str, dict[int, list[float]]] = collections.defaultdict(
            lambda: collections.defaultdict(list)
        )
        for row in self.rows():
            if not row["note"]:
                lines[row["type"]][row["block"]].append(100 * row["reduction"])
        for kind, blocks in lines.items():
            points = sorted((block, sum(values) / len(values)) for block, values in blocks.items())
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3, linewidth=1, label=kind)
        axes.set_xlabel("block")
        axes.set_ylabel("reduction of the local loss against the warm start, %")
        axes.set_title(
            f"{self.settings.get('method')}, {self.settings.get('pattern')}, {self.sparsity:.1%} removed"
        )
        axes.grid(alpha=0.3)
        if lines:
            axes.legend(fontsize="small", ncols=2)
        save_figure(figure, path)

    def summary(self) -> list[list[str]]:
        """A table: means by type of matrix."""
        groups: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
        for row in self.rows():
            groups[row["type"]].append(row)
        table = [["type", "matrices", "removed", "loss", "warm start", "reduction", "certificate", "seconds"]]
        for kind, rows in groups.items():
            table.append([kind, str(len(rows)), *_means(rows)])
        table.append(
            ["all", str(len(self.layers)), *_means([row for rows in groups.values() for row in rows])]
        )
        return table

    def _preset(self) -> tuple[str, list[str]]:
        """(The preset that was asked for, what was given beside it); ("", []) without one. Options count
        whatever their value, refinement and distillation where they differ from the preset's.
        """
        options = self.settings.get("options", {})
        preset = options.get("preset", "")
        if preset not in PRESETS:
            return "", []
        of_preset = dataclasses.asdict(PRESETS[preset])
        beside = [name for name in options if name not in ("preset", "device", "precision", "priority")]
        if self.settings.get("method") != f"preset {preset}":
            beside.insert(0, "method")
        for name, part in (("refine_blocks", "refinement"), ("distill", "distillation")):
            if name in self.settings and self.settings[name] != of_preset[part]:
                beside.append(name)
        return preset, beside

    def __str__(self) -> str:
        table = self.summary()
        widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
        lines = [
            "  ".join(
                text.ljust(width) if column == 0 else text.rjust(width)
                for column, (text, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in table
        ]
        lines.append(
            "loss, warm start: |WX - W'X|^2 in per cent of pruning everything, means; "
            f"certificate: {CERTIFICATE}"
        )
        preset, overrides = self._preset()
        if overrides:
            lines.append(f"preset {preset}; overridden by: {', '.join(overrides)}")
        if self.refinements:
            lines.append(_refined(self.refinements))
        if self.distillation:
            lines.append(_distilled(self.distillation))
        if self.tuning:
            chosen = self.tuning["candidates"][self.tuning["chosen"]]
            lines.append(
                f"settings: {json.dumps(chosen['options'])}, the best of {len(self.tuning['candidates'])} "
                f"candidates on {self.tuning['windows']} held-back windows"
            )
        if self.cluster:
            lines.append(_nodes(self.cluster))
        noted = collections.Counter(layer["note"] for layer in self.layers if layer["note"])
        lines += [f"{count} matrices: {note}" for note, count in noted.items()]
        # Several: of servers side by side, or of a run that went on after an update.
        lines += [f"{name}: {text}" for name, text in self.versions.items() if ", " in str(text)]
        if self.dense:
            lines.append(f"dense: {', '.join(self.dense[:3])}{' ...' if len(self.dense) > 3 else ''}")
        return "\n".join(map(printable, lines))


def _refined(blocks: list[dict[str, Any]]) -> str:
    keys = ("error_before", "error_after")
    before, after = (sum(block[key] for block in blocks) / len(blocks) for key in keys)
    seconds = sum(block["seconds"] for block in blocks)
    return (
        f"{len(blocks)} blocks refined in {seconds:.1f} s: mean error of a block's output on held-back "
        f"sequences {before:.2%} before, {after:.2%} after; the losses above are those before"
    )


def _distilled(record: dict[str, Any]) -> str:
    before, after = record["divergence_before"], record["divergence_after"]
    end = "" if record["kept"] == "end" else "; the steps did harm and were taken back"
    return (
        f"model distilled in {record['seconds']:.1f} s: divergence from the dense model on held-back "
        f"sequences {before:.4f} nats a token before, {after:.4f} after{end}"
    )


def _nodes(cluster: dict[str, Any]) -> str:
    nodes = cluster["nodes"].values()
    shares = []
    for node in nodes:
        tasks = node["calibration"].values()
        seconds, read = (sum(kind[what] for kind in tasks) for what in ("seconds", "read"))
        shares.append(
            f"{node['address']} {node['jobs']} jobs in {node['seconds']:.1f} s, "
            f"{node['gram_bytes'] / 1e6:.1f} MB, calibration {seconds:.1f} s, {read / 1e6:.1f} MB"
        )
    sent = sum(cluster["sent"].values())
    lost = f"; {cluster['lost_workers']} workers lost, {cluster['retries']} jobs run again"
    end = lost if cluster["lost_workers"] else ""
    kinds = sorted({node["processor"] for node in nodes if node["processor"]})
    if len(kinds) < 2:
        kinds = sorted({f"PyTorch with {node['pytorch']}" for node in nodes if node["pytorch"]})
    if len(kinds) > 1:
        end += f"; mixed processors, so the bits depend on which node did what: {'; '.join(kinds)}"
    return (
        f"{len(shares)} nodes: {'; '.join(shares[:8])}{' ...' if len(shares) > 8 else ''}; sent by this "
        f"process: {sent / 1e6:.1f} MB{end}"
    )


def _means(rows: list[dict[str, Any]]) -> list[str]:
    measured = [row for row in rows if not row["note"]] or rows

    def mean(key: str) -> float:
        return sum(float(row[key]) for row in measured) / len(measured)

    removed = 1 - sum(row["kept"] for row in rows) / sum(row["weights"] for row in rows)
    return [
        f"{removed:.2%}",
        f"{mean('loss'):.3%}",
        f"{mean('warm_start'):.3%}",
        f"{mean('reduction'):.1%}",
        f"{mean('certificate'):.1%}" if mean("certificate") else "-",
        f"{sum(row['seconds'] for row in rows):.1f}",
    ]


def layer_type(name: str) -> str:
    """The type "self_attn.q_proj" for "model.layers.3.self_attn.q_proj.weight"; experts are of one
    type.
    """
    parts = name.partition("[")[0].removesuffix(".weight").split(".")
    return ".".join(part for part in parts[-2:] if not part.isdecimal())


def block_of(name: str) -> int:
    """The first number in a name."""
    match = re.search(r"\.(\d+)\.", name)
    return int(match[1]) if match else 0
