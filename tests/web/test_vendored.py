"""Files of others: their licence, version and hash are written down, and no address leads anywhere else."""

import hashlib
import json
import re
from importlib import resources

from tenure.web.headers import POLICY

WEB = resources.files("tenure.web")
STATIC = WEB / "static"
OWN = {"page.css", "page.js", "icon.svg", "figures.css", "charts.js"}

LICENCES = {"0BSD": ("Zero-Clause BSD", "htmx.LICENSE"), "MIT": ("The MIT License (MIT)", "uPlot.LICENSE")}


def test_every_vendored_file_is_what_the_manifest_says():
    manifest = {entry["file"]: entry for entry in json.loads((STATIC / "vendored.json").read_text())}
    scripts = {file.name for file in STATIC.iterdir() if file.name.endswith((".js", ".css", ".svg"))}
    assert scripts == OWN | set(manifest)
    for name, entry in manifest.items():
        data = (STATIC / name).read_bytes()
        assert hashlib.sha256(data).hexdigest() == entry["sha256"], name
        assert re.fullmatch(r"\d+\.\d+\.\d+", entry["version"])
        assert entry["licence"] in LICENCES
        assert b"sourceMappingURL" not in data
    for words, file in LICENCES.values():
        assert words in (STATIC / file).read_text()


def test_our_own_styles_are_small():
    assert len((STATIC / "page.css").read_bytes()) <= 15_000


def test_the_charts_are_loaded_by_the_page_of_a_job_alone():
    naming = [file.name for file in (WEB / "templates").iterdir() if "uPlot" in file.read_text()]
    assert naming == ["job.html"]


def test_templates_need_no_exception_from_the_policy():
    for template in (WEB / "templates").iterdir():
        text = template.read_text()
        assert not re.search(r"<style|\sstyle=|<script(?![^>]*\ssrc=)|\son[a-z]+=|hx-on|javascript:|js:", text), (
            template.name
        )
        assert "|safe" not in text
        assert not re.search(r'(?:src|href|action)="(?:https?:)?//', text), template.name
    assert "unsafe" not in POLICY
    assert "http" not in POLICY
