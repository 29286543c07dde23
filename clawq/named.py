"""Named tuples as `typing` makes them, without `typing`: it costs a short command 9 ms, and a third of a
millisecond more for each class.

A checker reads ``typing.NamedTuple`` here. A class is written as for that one, below
``from __future__ import annotations``.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    from _collections import _tuplegetter

    class _Fields(type):
        def __new__(meta, name, bases, body):
            fields = tuple(body.get("__annotations__", ()))
            body["_field_defaults"] = {field: body[field] for field in fields if field in body}
            body["_fields"] = body["__match_args__"] = fields
            body["__slots__"] = ()
            body.update({field: _tuplegetter(at, None) for at, field in enumerate(fields)})
            return super().__new__(meta, name, bases, body)

    class NamedTuple(tuple, metaclass=_Fields):
        def __new__(cls, *values, **named):
            if named or len(values) != len(cls._fields):
                values = cls._filled(values, named)
            return tuple.__new__(cls, values)

        @classmethod
        def _filled(cls, values, named):
            """All the values in order. Raises TypeError, as a function with these arguments would."""
            rest, defaults = cls._fields[len(values) :], cls._field_defaults
            try:
                values += tuple([named.pop(each) if each in named else defaults[each] for each in rest])
            except KeyError as missing:
                raise TypeError(f"{cls.__name__} lacks {missing}") from None
            if named or len(values) > len(cls._fields):
                raise TypeError(f"{cls.__name__} has no place for {named or values[len(cls._fields) :]}")
            return values

        @classmethod
        def _make(cls, values):
            return cls(*values)

        def _replace(self, **changes):
            values = [changes.pop(field, value) for field, value in zip(self._fields, self, strict=True)]
            return type(self)(*values, **changes)

        def __getnewargs__(self):
            return tuple(self)

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self):
            return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self._asdict().items())})"
