"""clawq.named against the module that it stands in for."""

from __future__ import annotations

import copy
import pickle
import typing

import pytest

from clawq import named


class Own(named.NamedTuple):
    a: int
    b: str | None = None
    c: tuple[int, ...] = ()

    @property
    def both(self) -> str:
        return f"{self.a} {self.b}"


class Theirs(typing.NamedTuple):
    a: int
    b: str | None = None
    c: tuple[int, ...] = ()


CALLS = [((1,), {}), ((1, "x"), {}), ((1, "x", (2,)), {}), ((), {"a": 1, "c": (3,)}), ((1,), {"b": "y"})]


@pytest.mark.parametrize(("values", "by_name"), CALLS)
def test_it_is_what_typing_makes(values: tuple[object, ...], by_name: dict[str, object]) -> None:
    own, theirs = Own(*values, **by_name), Theirs(*values, **by_name)  # type: ignore[arg-type]
    assert own == theirs
    assert hash(own) == hash(theirs)
    assert (own.a, own.b, own.c) == theirs
    assert repr(own) == repr(theirs).replace("Theirs", "Own")
    assert own._asdict() == theirs._asdict()
    assert own._replace(b="z") == theirs._replace(b="z")
    assert Own._make(own) == own
    assert Own._fields == Theirs._fields
    assert own.both == f"{own.a} {own.b}"
    for twin in (copy.copy(own), pickle.loads(pickle.dumps(own))):
        assert (type(twin), twin) == (Own, own)
    match own:
        case Own(1, b):
            assert b == own.b
        case _:
            pytest.fail("its fields have no places in a pattern")


@pytest.mark.parametrize(
    ("values", "by_name"),
    [((), {}), ((), {"b": "x"}), ((1, "x", (), 4), {}), ((1,), {"a": 2}), ((1,), {"d": 2})],
)
def test_what_does_not_fit_is_refused_by_both(values: tuple[object, ...], by_name: dict[str, object]) -> None:
    for kind in (Own, Theirs):
        with pytest.raises(TypeError):
            kind(*values, **by_name)  # type: ignore[arg-type]


def test_what_it_has_no_field_for_is_refused() -> None:
    with pytest.raises(TypeError):
        Own(1)._replace(d=2)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Own(1).a = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        Own(1).d = 2  # type: ignore[attr-defined]
