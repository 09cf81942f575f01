"""How the end of a process is described."""

import signal

from tampu.consumer.runners.child_process import describe_exit


def test_an_exit_code_is_named_by_its_number_and_a_signal_by_its_name() -> None:
    assert describe_exit(0) == "exit code 0"
    assert describe_exit(3) == "exit code 3"
    assert describe_exit(-signal.SIGSEGV) == "signal SIGSEGV"


def test_a_signal_without_a_name_is_given_by_its_number() -> None:
    assert describe_exit(-200) == "signal 200"
