import re

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateTable

from tampu.errors import OptionError
from tampu.outbox import create_sql, make_table
from tampu.outbox.drivers import Driver, SqlDialect
from tampu.outbox.schema import OutboxSql, check_table

COLUMNS = ["id", "queue", "job", "problem", "created_at"]


@pytest.mark.parametrize("name", ["tampu_outbox", "shop.outbox", "_x1", "T" * 63])
def test_a_plain_name_is_a_table(name: str) -> None:
    assert check_table(name) == name


@pytest.mark.parametrize(
    "name", ["", "a b", "a;b", 'a"b', "a.b.c", "1a", "T" * 64, None, b"t", "a\n"]
)
def test_a_name_that_needs_quotes_is_refused(name: object) -> None:
    with pytest.raises(OptionError, match="Invalid table"):
        check_table(name)


def test_an_unknown_dialect_is_refused() -> None:
    with pytest.raises(OptionError, match="postgresql or sqlite"):
        create_sql(dialect="mysql")


@pytest.mark.parametrize("dialect", SqlDialect)
def test_the_statement_has_the_columns_of_the_table_of_sqlalchemy(dialect: SqlDialect) -> None:
    made = make_table(sa.MetaData())
    assert [each.name for each in made.columns] == COLUMNS
    statement = create_sql(dialect=dialect)
    assert re.findall(r"^    (\w+) ", statement, re.MULTILINE) == COLUMNS
    engine = {SqlDialect.POSTGRESQL: postgresql.dialect, SqlDialect.SQLITE: sqlite.dialect}[dialect]
    text = str(CreateTable(made).compile(dialect=engine()))
    assert [name for name in COLUMNS if f"{name} " in text] == COLUMNS


def test_the_table_has_a_schema_if_its_name_has_one() -> None:
    assert make_table(sa.MetaData(), "shop.outbox").fullname == "shop.outbox"


@pytest.mark.parametrize(
    ("driver", "text"),
    [
        (Driver.SQLITE, "a = ? AND b = ?"),
        (Driver.PSYCOPG, "a = %s AND b = %s"),
        (Driver.ASYNCPG, "a = $1 AND b = $2"),
    ],
)
def test_each_driver_has_its_own_way_to_write_values(driver: Driver, text: str) -> None:
    assert driver.statement("a = ? AND b = ?") == text


@pytest.mark.parametrize("dialect", SqlDialect)
def test_no_value_stands_in_a_statement(dialect: SqlDialect) -> None:
    sql = OutboxSql("t", dialect, 1000)
    text, values = sql.fetch(7, {"a'b"})
    assert "a'b" not in text
    assert values[0] == 7
    assert text.count("?") == len(values)
    assert "'" not in sql.refuse(1, "it's")[0]
