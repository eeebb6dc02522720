"""What one call works on: model, text, settings and the folder of its state, checked and open."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Any

import torch

from sparsefw.errors import invalid
from sparsefw.hf import allocate
from sparsefw.hf import data as texts
from sparsefw.hf.cluster.settings import Ray
from sparsefw.hf.folder import check_out, check_own, check_room, hold, near, write_folder
from sparsefw.hf.layout import layout_of
from sparsefw.hf.perplexity import evaluating
from sparsefw.hf.pools.choice import Given, place_of
from sparsefw.hf.progress import Progress
from sparsefw.hf.report import Report
from sparsefw.hf.run import Run
from sparsefw.hf.settings import Settings, folder_of
from sparsefw.hf.source import InMemory, Source, Streamed, device_to_load
from sparsefw.hf.state import DISTILLATION, TEMPORARY, State, mark_temporary, remove_abandoned
from sparsefw.hf.training.distill import check_head, check_memory
from sparsefw.hf.training.steps import check_blocks_apart, check_trainable
from sparsefw.hf.tuning import Tuned, Tuning, named, settings_of, tune_settings
from sparsefw.hf.values import truth


class Work:
    """A context manager. Whatever is wrong with the arguments is said before anything is computed."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        data: Any,
        settings: Settings,
        tuning: Tuning | None,
        server: Given,
        state_dir: str | os.PathLike[str] | None,
        place: Path | None,
        progress: bool,
        device: Any,
        overwrite: bool = False,
        prunes: bool = True,
    ) -> None:
        """See prune_model.

        Args:
            place:  the folder for the pruned model.
            prunes: False: it is for `tune` alone, which distils nothing.
        """
        self._prunes = prunes
        self._settings, self._tuning, self._shown = settings, tuning, progress
        listed = texts.listed(data)
        self._at = place_of(server)
        folder = folder_of(model)
        if place is not None:
            check_out(place, Path(state_dir) if state_dir is not None else None, folder)
        self._source: Source
        # The pruned folder gets it where the model's own folder has none to copy.
        self._tokenizer = tokenizer if folder is None else None
        if folder is None:
            self._source = InMemory(model)
        else:
            # On Ray this process runs the embeddings alone.
            here = torch.cuda.is_available() and not isinstance(self._at, Ray)
            self._source = Streamed(folder, device or ("cuda" if here else "cpu"))
            tokenizer = tokenizer or texts.tokenizer_of(folder, listed)
        length = texts.longest(self._source.model, settings.sequence_length)
        known = texts.vocabulary_of(self._source.model)
        self._samples = texts.sequences(tokenizer, listed, length, settings.samples, settings.seed, known)
        self._layout = layout_of(self._source.model, settings.ignore, settings.routers)
        self._state_dir, self._place = state_dir, place
        self._check()
        if place is not None and isinstance(self._source, Streamed):
            self._source.check_writable(self._layout)
        self._model = self._source.digest()
        self._overwrites = truth("overwrite", overwrite)
        self._stack = contextlib.ExitStack()

    def _check(self) -> None:
        every = [self._settings]
        model = self._source.model
        if isinstance(self._at, Ray) and self._settings.gram == "server":
            raise invalid('gram="server" needs a server; on Ray the nodes sum the Gram matrices: gram="auto"')
        if self._tuning is not None:
            self._tuning.check(len(self._samples))
            check_blocks_apart(model, "tune")
            check_head(model, "tune")
            every = settings_of(self._settings, self._tuning)
        for index, settings in enumerate(every):
            with contextlib.nullcontext() if self._tuning is None else named(index):
                self._check_with(settings)

    def _check_with(self, settings: Settings) -> None:
        model, sequences, most = self._source.model, len(self._samples), self._settings.samples
        if settings.refinement is not None:
            check_trainable(model, sequences, most, settings.refined_by)
        if settings.distillation is not None and self._prunes:
            check_trainable(model, sequences, most, settings.distilled_by)
            check_head(model, settings.distilled_by)
            # A run that has distilled needs no more than it does without.
            if self._state_dir is None or not (Path(self._state_dir) / f"{DISTILLATION}.json").exists():
                check_memory(model, self._layout, device_to_load(self._source), settings.distilled_by)
        if not isinstance(settings.allocation, str):
            matrices = [matrix for block in self._layout for matrix in block.matrices]
            allocate.by_name(matrices, settings.allocation, settings.sparsity)

    def _facts(self, settings: Settings) -> dict[str, Any]:
        digest = texts.digest(self._samples)
        facts = settings.facts(self._model, digest, self._samples)
        if self._tuning is None:
            return {**facts, "tune": None}
        meanings = [candidate.meaning() for candidate in settings_of(self._settings, self._tuning)]
        return {**facts, "tune": {**self._tuning.facts(), "meanings": meanings}}

    def __enter__(self) -> Work:
        disk = near(self._place) if self._place is not None else None
        remove_abandoned(disk or Path(tempfile.gettempdir()))
        self._check_place()
        with contextlib.ExitStack() as stack:
            if self._place is not None:
                stack.enter_context(hold(self._place))
                check_room(self._place, self._source.stored_bytes())
            stack.enter_context(evaluating(self._source.model))
            self._lasting = self._state_dir is not None
            folder = self._state_dir
            if folder is None:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=disk))
            self._state = State(Path(folder), self._facts(self._settings))
            stack.callback(self._state.close)
            if not self._lasting:
                mark_temporary(Path(folder))
            self._stack = stack.pop_all()
        return self

    def _check_place(self) -> None:
        """With a state_dir the run may replace what it wrote itself."""
        if self._place is None or self._overwrites:
            return
        every = [] if self._state_dir is None else [self._settings]
        if every and self._tuning is not None:
            every = settings_of(self._settings, self._tuning)
        check_own(self._place, [self._facts(settings) for settings in every])

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def tune(self) -> Tuned:
        """Which of the candidates is best."""
        assert self._tuning is not None
        return tune_settings(
            self._source,
            self._settings,
            self._tuning,
            self._layout,
            self._samples,
            self._state,
            self._at,
            self._model,
            self._lasting,
            self._shown,
        )

    def prune(self, trace: bool) -> Report:
        """Prunes the model, with the settings of the best candidate where there are several."""
        settings, tuned = self._settings, None
        if self._tuning is not None:
            tuned = self.tune()
            settings = settings_of(settings, self._tuning)[tuned.chosen]
        matrices = sum(len(block.matrices) for block in self._layout)
        with contextlib.closing(Progress(matrices, len(self._layout), self._shown)) as shown:
            self._run = Run(
                self._source, settings, self._layout, self._samples, self._state, shown, self._lasting, trace
            )
            report = self._run.to_the_end(self._at)
        report.settings = self._facts(settings)
        report.tuning = tuned.to_dict() if tuned is not None else None
        return report

    def write(self, place: Path, report: Report) -> None:
        """The pruned model as a folder, after `prune`."""
        report.out = str(place)
        try:
            write_folder(
                place,
                report,
                self._tokenizer,
                lambda path: self._source.write(path, self._layout, self._run.outcomes),
                self._check_place,  # another run may have ended meanwhile
            )
        except OSError as error:  # a full disk, for example
            if self._lasting:
                raise
            kept = self._state.outlast()
            why = f"{error.strerror}; the pruned blocks are kept: repeat the call with state_dir={kept}"
            raise OSError(error.errno, why, error.filename) from error
