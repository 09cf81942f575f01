"""The findings of `tampu doctor`."""

from tampu.admin.health import Finding, Grade
from tampu.cli.server import findings_table
from tests.unit.cli.tables import print_view


def test_findings_wrap_instead_of_being_cut() -> None:
    sentence = " ".join(["word"] * 40)
    lines = print_view(findings_table([Finding("memory", Grade.FAIL, sentence)]))
    assert " ".join(" ".join(lines).split()) == f"fail memory {sentence}"
