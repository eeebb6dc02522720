"""Hooks of MkDocs: pages that are not in docs/, and the links of all pages.

Pages are written for the repository: their links are paths there, and their Markdown is GitHub's. Here links
lead to pages of the site, and files of sources get a page of their own.
"""

import re
import sys
from pathlib import Path

from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).parent))

import dialect  # noqa: E402
import proto_page  # noqa: E402
import sources  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
# Page of the site -> file of the repository.
PAGES = {
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
    "go.md": "client/go/README.md",
    "python-reference.md": "script/site/python-reference.md",
    "site.css": "script/site/site.css",
}
LINK = re.compile(r"(?<!\\)\]\(([^)#:\s]*)(#[^)\s]*)?\)")
# What the search puts in front: pages that say how to do something; and behind: those made from sources.
BOOST = {"own-data.md": 3, "tutorial-layer.md": 2, "tutorial-model.md": 2, "choosing.md": 2, "python-reference.md": 0.5,
         "proto-reference.md": 0.5, "changelog.md": 0.5}
# Sources are for who follows a link.
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n"


def on_files(files, config):
    """Adds the pages, and one for each source that a page links to."""
    add = {page: (ROOT / path).read_text() for page, path in PAGES.items()}
    add["adr/index.md"] = decisions()
    add["proto-reference.md"] = proto_page.page(ROOT / "proto")
    for page, text in add.items():
        files.append(File.generated(config, page, content=text))
    there = {file.src_uri for file in files}
    for file in list(files.documentation_pages()):
        text = dialect.without_code(file.content_string)
        for match in LINK.finditer(text):
            path = repository_path(file.src_uri, match[1])
            page = path and sources.page_of(path)
            if path and site_path(path) is None and page not in there and (ROOT / path).exists():
                there.add(page)
                files.append(File.generated(config, page, content=UNSEARCHED + sources.text_of(ROOT, path)))
    return files


def on_page_markdown(markdown, page, config, files):
    """The page as MkDocs takes it: links and dialect."""
    if page.file.src_uri.startswith("source/"):
        return markdown
    if page.file.src_uri in BOOST:
        page.meta["search"] = {"boost": BOOST[page.file.src_uri]}
    elif page.file.src_uri.startswith(("adr/", "benchmarks/")):
        page.meta["search"] = {"boost": 0.3}

    def link(match):
        if not match[1]:
            return match[0]
        path = repository_path(page.file.src_uri, match[1])
        if path is None:
            return match[0]
        target = site_path(path) or sources.page_of(path)
        return f"]({relative(page.file.src_uri, target)}{match[2] or ''})"

    return dialect.for_python_markdown(dialect.outside_code(lambda text: LINK.sub(link, text), markdown))


def decisions():
    """The list of docs/adr."""
    lines = ["# Decisions", "", "Decisions that the code does not explain, one page each.", ""]
    for path in sorted((ROOT / "docs/adr").glob("0*.md")):
        title = path.read_text().split("\n", 1)[0].removeprefix("# ")
        lines.append(f"- [{title}]({path.name})")
    return "\n".join(lines) + "\n"


def repository_path(page, target):
    """Where a link of a page leads, from the root of the repository; None: out of it."""
    origin = PAGES.get(page, "")
    if not origin or origin.startswith("script/site/"):
        origin = f"docs/{page}"
    path = ((ROOT / origin).parent / target).resolve()
    return str(path.relative_to(ROOT)) if target and path.is_relative_to(ROOT) else None


def site_path(path):
    """The page of a file, if it has one of its own; None: it is a source."""
    for page, origin in PAGES.items():
        if path in (origin, str(Path(origin).parent)) and path != ".":
            return page
    if path == "docs/adr":
        return "adr/index.md"
    if path.startswith("docs/") and (ROOT / path).is_file():
        return path.removeprefix("docs/")
    return {"proto/sparsefw/v1": "proto-reference.md", "docs/adr/index.md": "adr/index.md"}.get(path)


def relative(page, target):
    up = page.count("/")
    return "../" * up + target
