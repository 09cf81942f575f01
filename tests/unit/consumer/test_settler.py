"""Settlements are split into calls."""

from tampu.consumer.settlement_calls import parts_of

MIB = 1_048_576


class TestParts:
    def test_small_items_go_in_one_part(self) -> None:
        assert list(parts_of([1] * 100, lambda each: each)) == [[1] * 100]

    def test_no_part_is_heavier_than_four_mebibytes(self) -> None:
        sizes = [MIB, 2 * MIB, MIB, 1, 3 * MIB, MIB, MIB]
        parts = list(parts_of(sizes, lambda each: each))
        assert [size for part in parts for size in part] == sizes
        assert parts == [[MIB, 2 * MIB, MIB], [1, 3 * MIB], [MIB, MIB]]

    def test_an_item_that_is_too_heavy_goes_alone(self) -> None:
        assert list(parts_of([5 * MIB, 1, 9 * MIB], lambda each: each)) == [
            [5 * MIB],
            [1],
            [9 * MIB],
        ]

    def test_nothing_makes_no_part(self) -> None:
        assert list(parts_of([], len)) == []
