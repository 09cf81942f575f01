"""Lua files in the form that each server gets."""

import hashlib

from tampu.server.dialect import Dialect
from tampu.server.scripts.script import Script


def test_only_servers_that_know_the_line_of_flags_get_it() -> None:
    script = Script("lead")
    old, new = (script.text(Dialect(version=version)) for version in ((6, 2), (7, 0)))
    assert new.body.startswith(b"#!lua flags=allow-oom\n")
    assert old.body == new.body.partition(b"\n")[2]
    for text in (old, new):
        assert text.digest.decode() == hashlib.sha1(text.body, usedforsecurity=False).hexdigest()
        assert text.body in text.load


def test_a_script_without_flags_is_the_same_for_all_servers() -> None:
    script = Script("add")
    assert (
        script.text(Dialect(version=(6, 2))).digest == script.text(Dialect(version=(9, 1))).digest
    )


def test_a_shared_part_replaces_the_line_that_names_it() -> None:
    body = Script("retry").text(Dialect(version=(9, 1))).body.decode()
    assert "local function settle(ids)" in body
    assert "local function add_entry(body, name, extras, expired)" in body
    assert "-- with parts/" not in body
