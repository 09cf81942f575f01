"""Links between the pages lead somewhere."""

from pathlib import Path

import pytest

from tests.guide.pages import DOCS, anchors_of, links_of, name_of
from tools.docs_contents import pages


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_relative_link_leads_to_a_file_and_a_heading_that_exist(page: Path) -> None:
    broken = [
        f"{target.name}#{anchor}"
        for target, anchor in links_of(page)
        if not target.exists() or (anchor and anchor not in anchors_of(target))
    ]
    assert broken == []


@pytest.mark.parametrize("folder", ["guide", "internals", "decisions", "reference", "tutorial"])
def test_the_index_of_a_folder_leads_to_every_page_in_it(folder: str) -> None:
    index = DOCS / folder / "README.md"
    assert set(index.parent.glob("*.md")) - {target for target, _ in links_of(index)} == {index}
