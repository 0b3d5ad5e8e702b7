#!/usr/bin/env python3
"""Checks that each link of a site that stays in it leads to a file and, in the book, to an anchor. usage: links.py SITE"""

import html.parser
import pathlib
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    def __init__(self, file):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(file.read_text())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.anchors.update(filter(None, (attributes.get("id"), attributes.get("name"))))
        link = attributes.get("src" if tag in ("img", "script") else "href")
        if link and tag in ("a", "img", "script", "link"):
            self.links.append(link)


def main():
    site = pathlib.Path(sys.argv[1]).resolve()
    book = {file: Page(file) for file in site.glob("*.html")}
    wrong, count = [], 0
    for file, page in book.items():
        # The page for unknown addresses is relative to the root of a server; the printed one has all pages' anchors.
        if file.name in ("404.html", "print.html"):
            continue
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            count += 1
            target = (file.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else file
            anchor = urllib.parse.unquote(parts.fragment)
            if not target.exists() or (anchor and target in book and anchor not in book[target].anchors):
                wrong.append(f"{file.name}: {link}")
    for line in dict.fromkeys(wrong):
        print(f"error: this link leads nowhere: {line}", file=sys.stderr)
    if wrong or not count:
        sys.exit(1)
    print(f"{len(book)} pages, {count} links within the site")


if __name__ == "__main__":
    main()
