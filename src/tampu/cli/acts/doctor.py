"""What `tampu doctor` does."""

from tampu.admin.health import Grade, examine, judge
from tampu.cli.ending import no
from tampu.cli.screen import Screen
from tampu.cli.shared import Shared
from tampu.cli.show.shapes import findings_shape
from tampu.cli.show.tables import findings_table
from tampu.server.connect import connect


async def doctor(shared: Shared) -> None:
    """Examine the server and tell what was found."""
    async with await connect(shared.url) as server:
        facts = await examine(server)
    findings = judge(facts)
    Screen(shared).show(findings_shape(facts.server, findings), lambda: findings_table(findings))
    failed = sum(each.grade is Grade.FAIL for each in findings)
    if failed:
        raise no(f"{failed} of {len(findings)} findings are failures.")
