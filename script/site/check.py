"""Follows every link of a built site to a file and an anchor in it: check.py FOLDER. Links to other sites are
counted, not followed."""

import sys
import urllib.parse
from html.parser import HTMLParser
from pathlib import Path

ATTRIBUTES = {"a": "href", "link": "href", "img": "src", "script": "src"}


class Page(HTMLParser):
    """Anchors and links of one page."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.anchors |= {found[key] for key in ("id", "name") if found.get(key)}
        target = found.get(ATTRIBUTES.get(tag, ""))
        if target is not None:
            self.links.add(target)


def check(folder):
    """(what is wrong, links followed, links to elsewhere)"""
    pages = {path: Page(path.read_text()) for path in sorted(folder.rglob("*.html"))}
    wrong, followed, elsewhere = [], 0, 0
    for path, page in pages.items():
        # It stands for any address, so its links begin at the root of a server.
        if path.name == "404.html":
            continue
        for link in sorted(page.links):
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                elsewhere += 1
                continue
            followed += 1
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            name = f"{path.relative_to(folder)}: {link}"
            if not target.is_relative_to(folder) or not target.is_file():
                wrong.append(f"{name}: there is no such file")
            elif parts.fragment and target in pages and urllib.parse.unquote(parts.fragment) not in pages[target].anchors:
                # Material's own anchors of its drawers are set by scripts.
                if not parts.fragment.startswith("__"):
                    wrong.append(f"{name}: there is no such anchor")
    return wrong, followed, elsewhere


def main():
    folder = Path(sys.argv[1]).resolve()
    wrong, followed, elsewhere = check(folder)
    for one in wrong:
        print(f"script/docs --check: {one}", file=sys.stderr)
    if followed < 1000:
        print(f"script/docs --check: only {followed} links in {folder}; is this the site?", file=sys.stderr)
        return 1
    print(f"{followed} links followed, {elsewhere} to other sites left out, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
