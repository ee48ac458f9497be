"""Values that are held up to so many bytes."""

from phaze_common.bounded_memo import BoundedMemo


def test_a_value_is_computed_once_while_it_is_held() -> None:
    memo = BoundedMemo[bytes](10, len)
    computed: list[int] = []

    def value(size: int) -> bytes:
        def compute() -> bytes:
            computed.append(size)
            return b"x" * size

        return memo.value(size, compute)

    assert [value(4), value(5), value(4)] == [b"x" * 4, b"x" * 5, b"x" * 4]
    assert computed == [4, 5]
    value(3)  # for which the oldest makes room
    value(5)
    value(4)
    assert computed == [4, 5, 3, 4]


def test_what_is_larger_than_all_room_is_held_alone() -> None:
    memo = BoundedMemo[bytes](10, len)
    first = memo.value("large", lambda: b"x" * 20)
    assert memo.value("large", bytes) is first
