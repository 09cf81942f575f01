"""A transactional outbox: jobs that are stored in your database, together with your data.

`Outbox` is what you use. For a migration of another kind, `create_sql` gives the statement and
`tampu.outbox.schema` says what the columns must be like.
"""

from tampu.outbox.outbox import Outbox
from tampu.outbox.relay import OutboxRelay
from tampu.outbox.schema import create_sql, make_table

__all__ = ["Outbox", "OutboxRelay", "create_sql", "make_table"]
