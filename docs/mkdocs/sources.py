"""Leads links to files that are not pages of the site to the repository."""

import posixpath
import re

LINK = re.compile(r"(\]\()([^)\s]+)(\))")


def on_page_markdown(markdown, page, config, files):
    pages = {f.src_uri for f in files if not f.inclusion.is_excluded()}
    folder = posixpath.dirname(page.file.src_uri)

    def lead(match):
        target, _, anchor = match[2].partition("#")
        if not target or ":" in target or target.startswith("/"):
            return match[0]

        path = posixpath.normpath(posixpath.join(folder, target))
        if path in pages:
            return match[0]
        source = f"{config.repo_url.rstrip('/')}/blob/main/{path}"
        return match[1] + source + ("#" + anchor if anchor else "") + match[3]

    return LINK.sub(lead, markdown)
