"""The documentation site: complete, in order, without broken links, without other hosts."""

from pathlib import Path

import pytest

from tests.guide.pages import DOCS, blocks_of, name_of
from tests.servers import ROOT
from tests.sites import build_site
from tools.docs_contents import (
    TABS,
    first_sentence,
    navigation,
    pages,
    place_of,
    places_in,
    write_llms,
    write_llms_full,
)
from tools.docs_site import gather, relink, requests_in, settings, show

PAGE = ROOT / "docs" / "guide" / "tasks.md"


class TestNavigation:
    def test_every_page_has_one_place(self) -> None:
        shown = list(places_in(navigation()))
        missing = {place_of(page) for page in pages()} - set(shown)
        assert missing == set(), "link it from the README.md of its folder, or name it in TABS"
        assert len(shown) == len(set(shown))

    def test_the_pages_outside_of_docs_are_known(self) -> None:
        outside = {*ROOT.glob("*.md"), *ROOT.glob("[!.]*/README.md")}
        assert outside - set(pages()) == set(), "add them to OUTSIDE"

    def test_the_guide_is_in_the_groups_of_its_index(self) -> None:
        (guide,) = (
            tab["Guide"] for tab in navigation() if isinstance(tab, dict) and "Guide" in tab
        )
        assert isinstance(guide, list)
        groups = {
            name: inside
            for each in guide
            if isinstance(each, dict)
            for name, inside in each.items()
        }
        assert "guide/tasks.md" in groups["Jobs and tasks"]
        assert "guide/moving-from-celery.md" in groups["Moving from another queue"]

    def test_an_index_among_other_pages_has_a_part_of_its_own(self) -> None:
        (more,) = (tab["More"] for tab in navigation() if isinstance(tab, dict) and "More" in tab)
        alone = [entry for entry in more if isinstance(entry, str)]
        assert "comparison.md" in alone
        assert [entry for entry in alone if entry.endswith("README.md")] == []

    def test_the_settings_have_the_navigation(self) -> None:
        assert '"Home" = "index.md"' in settings(navigation())


class TestLinks:
    @pytest.mark.parametrize(
        ("written", "on_the_site"),
        [
            ("[a](retrying.md#backoff)", "[a](retrying.md#backoff)"),
            ("[a](../../README.md#quickstart)", "[a](../index.md#quickstart)"),
            ("[a](../../examples/web.py)", "[a](../examples/web.py.md)"),
            ("[a](../../examples)", "[a](../examples/README.md)"),
            ("[a](../../benchmarks/README.md)", "[a](../benchmarks/README.md)"),
            ("[a](#arguments)", "[a](#arguments)"),
            ("[a](https://example.org/b.md)", "[a](https://example.org/b.md)"),
            ("`[a](../../README.md)`", "`[a](../../README.md)`"),
            ("```md\n[a](../../README.md)\n```", "```md\n[a](../../README.md)\n```"),
        ],
    )
    def test_a_link_leads_to_the_place_on_the_site(self, written: str, on_the_site: str) -> None:
        assert relink(written, PAGE, ROOT) == on_the_site

    def test_what_a_page_leads_to_is_there_too(self, tmp_path: Path) -> None:
        gather(ROOT, tmp_path)
        assert (tmp_path / "examples/web.py.md").read_text("utf-8").startswith("# web.py\n")
        assert (tmp_path / "observability/grafana-dashboard.json").exists()
        assert (tmp_path / "guide/images/overview-light.png").exists()

    def test_the_pictures_of_the_first_page_follow_the_colours_of_its_reader(
        self, tmp_path: Path
    ) -> None:
        gather(ROOT, tmp_path)
        home = (tmp_path / "index.md").read_text("utf-8")
        assert "](guide/images/overview-light.png#only-light)" in home
        assert "](guide/images/overview-dark.png#only-dark)" in home
        assert (tmp_path / "guide/images/overview-dark.png").exists()

    def test_the_files_of_a_folder_are_shown_on_one_page(self, tmp_path: Path) -> None:
        (tmp_path / "chart").mkdir()
        (tmp_path / "chart/values.yaml").write_text("a: 1\n")
        page = show(tmp_path / "chart", tmp_path)
        assert "## values.yaml\n\n````yaml\na: 1\n````" in page


class TestRequests:
    @pytest.mark.parametrize(
        "text",
        [
            '<script defer src="https://cdn.example/a.js"></script>',
            "<img alt=x src=//cdn.example/a.png>",
            '<link rel="stylesheet" href="https://fonts.example/css">',
            '<link href="https://fonts.example" rel="preconnect" crossorigin>',
            "a { background: url(https://cdn.example/a.png) }",
            '@import "https://cdn.example/a.css";',
        ],
    )
    def test_a_request_to_another_host_is_found(self, text: str) -> None:
        assert requests_in(text) != []

    @pytest.mark.parametrize(
        "text",
        [
            '<a href="https://example.org">there</a>',
            '<link rel="canonical" href="https://example.org/a">',
            '<script src="../assets/a.js"></script><p>https://example.org</p>',
        ],
    )
    def test_links_and_own_files_are_none(self, text: str) -> None:
        assert requests_in(text) == []


class TestForReaders:
    """llms.txt, for programs that read documentation."""

    def test_it_names_every_page_with_its_address(self) -> None:
        text = write_llms()
        assert text.startswith("# tampu\n\n> tampu is a fast, reliable job queue")
        assert [f"## {tab}" for tab in TABS] == [
            line for line in text.splitlines() if line[:2] == "##"
        ]
        assert text.count("\n- [") == len(pages())
        assert "\n- [Tasks](guide/tasks/): Turn a function into a task" in text
        assert "\n- [Guide](guide/)" in text

    def test_all_code_of_the_guide_is_in_the_full_text(self) -> None:
        text = write_llms_full()
        for page in sorted((DOCS / "guide").glob("*.md")):
            assert all(block.source in text for block in blocks_of(page)), name_of(page)

    @pytest.mark.parametrize(
        ("page", "sentence"),
        [
            ("# A\n\nAdd a [job](b.md). Then more.\n", "Add a job."),
            ("# A\n\n![c](d.png)\n\nAdd a\njob:\n", "Add a job"),
            ("# A\n\n| a |\n|---|\n", ""),
        ],
    )
    def test_the_first_sentence_of_a_page(self, page: str, sentence: str) -> None:
        assert first_sentence(page) == sentence


class TestBuilding:
    @pytest.mark.parametrize(
        "broken",
        ["[a](nowhere.md)", "[a](index.md#nowhere)", "::: tampu.Nobody"],
        ids=["page", "heading", "name"],
    )
    def test_what_leads_nowhere_ends_the_build(self, tmp_path: Path, broken: str) -> None:
        built = build_site(tmp_path, {"index": "# Home\n", "guide": f"# Guide\n\n{broken}\n"})
        assert built.returncode != 0, built.stdout

    def test_pages_load_nothing_from_other_hosts(self, tmp_path: Path) -> None:
        guide = "# Guide\n\n[Home](index.md)\n\n::: tampu.Backoff\n\n```python\nx = 1\n```\n"
        built = build_site(tmp_path, {"index": "# Home\n", "guide": guide})
        assert built.returncode == 0, built.stdout + built.stderr
        page = (tmp_path / "site/guide/index.html").read_text("utf-8")
        assert "exponential" in page
        assert requests_in(page) == []
