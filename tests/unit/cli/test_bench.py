"""The figures of `tampu bench`."""

from tampu.cli.bench import percentile


def test_a_percentile_is_one_of_the_values() -> None:
    hundred = [float(number) for number in range(1, 101)]
    assert [percentile(hundred, p) for p in (50, 99, 100)] == [50, 99, 100]
    assert [percentile([7.0], p) for p in (1, 50, 99)] == [7, 7, 7]
