"""Settings survive TOML exactly; whatever is misspelled or of the wrong type is named, with what was meant."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mona_infer.errors import InputError
from mona_train.config.toml import from_toml, to_toml, with_value


@dataclass(frozen=True)
class Optimiser:
    """How weights move.

    And a second paragraph that is not for the file."""

    kind: Literal["sgd", "adamw"] = "sgd"
    lr: float = 0.01
    nesterov: bool = False

    def __post_init__(self) -> None:
        if self.lr < 0:
            raise InputError(f"expected lr >= 0, found {self.lr}")


@dataclass(frozen=True)
class Bare:
    queries: int = 256
    weight: float = 0.1


@dataclass(frozen=True)
class Other:
    """Another stage."""

    rate: float = 1.0
    principles: tuple[str, ...] = ("a", "b")


@dataclass(frozen=True)
class Run:
    """One run."""

    dataset: str
    steps: int = 100
    size: tuple[int, int] = (256, 256)
    range: tuple[float, float] = (0.0, 1.0)
    pair: tuple[str, int] = ("a", 1)
    numbers: tuple[int, ...] = ()
    ratio: float | None = None
    warm: float | None = 0.5  # None is not its default
    warmer: float | None = field(default_factory=lambda: 0.5)
    name: str | None = None
    width: int | Literal["auto"] = "auto"
    level: Literal[0, 1] = 1
    tag: str | int = ""
    optimiser: Optimiser = field(default_factory=Optimiser)
    stages: dict[str, Any] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    derived: int = field(default=7, init=False)  # no setting


@dataclass(frozen=True)
class Typed:
    parts: dict[str, Bare] = field(default_factory=lambda: {"default": Bare()})
    inner: Optimiser = field(default_factory=Optimiser)


@dataclass(frozen=True)
class Strict:
    inner: Run  # no default: made from what the file has
    maybe: int | None


RUN = Run("acdc", stages={"acr": Bare(), "mean-teacher": Other()})
TABLES = {"stages.acr": Bare, "stages.mean-teacher": Other}

finite = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(exclude_categories=["Cs"]))
runs = st.builds(
    Run,
    dataset=texts,
    steps=st.integers(),
    size=st.tuples(st.integers(), st.integers()),
    range=st.tuples(finite, finite),
    pair=st.tuples(texts, st.integers()),
    numbers=st.lists(st.integers()).map(tuple),
    ratio=st.none() | finite,
    warm=st.none() | finite,
    warmer=st.none() | finite,
    name=st.none() | texts.filter(lambda t: t != "none"),
    width=st.integers() | st.just("auto"),
    level=st.sampled_from([0, 1]),
    tag=texts | st.integers(),
    optimiser=st.builds(Optimiser, st.sampled_from(["sgd", "adamw"]), finite.map(abs), st.booleans()),
    stages=st.builds(Bare, st.integers(), finite).map(lambda bare: {"acr": bare, "mean-teacher": Other()}),
    shares=st.dictionaries(texts, finite, max_size=3),
)  # fmt: skip


@settings(deadline=None)
@given(runs)
def test_toml_gives_back_the_same_settings(run: Run) -> None:
    text = to_toml(run)
    assert from_toml(text, Run, tables=TABLES) == run
    assert to_toml(from_toml(text, Run, tables=TABLES)) == text


def test_the_file_reads_well() -> None:
    assert to_toml(replace(RUN, steps=3, range=(np.float64(0.25), 1e-5))) == (
        '# One run.\ndataset = "acdc"\nsteps = 3\nsize = [256, 256]\nrange = [0.25, 1e-05]\npair = ["a", 1]\n'
        'numbers = []\n# ratio: none\nwarm = 0.5\nwarmer = 0.5\n# name: none\nwidth = "auto"\nlevel = 1\ntag = ""\n\n'
        '# How weights move.\n[optimiser]\nkind = "sgd"\nlr = 0.01\nnesterov = false\n\n'
        "[stages.acr]\nqueries = 256\nweight = 0.1\n\n"
        '# Another stage.\n[stages.mean-teacher]\nrate = 1.0\nprinciples = ["a", "b"]\n\n[shares]\n'
    )


def test_a_type_no_file_can_hold_is_a_mistake_of_the_programmer() -> None:
    with pytest.raises(TypeError, match="steps: a setting cannot be a set"):
        to_toml(replace(RUN, steps={1}))  # type: ignore[arg-type]


def test_typed_dicts_need_no_list_of_tables() -> None:
    typed = Typed({"a": Bare(1), "b c": Bare(weight=2)})
    assert from_toml(to_toml(typed), Typed) == typed
    assert from_toml(to_toml(Typed({})), Typed) == Typed({})
    assert from_toml("", Typed) == Typed()
    with pytest.raises(InputError, match=r"parts.a.queris; did you mean parts.a.queries\?"):
        from_toml("[parts.a]\nqueris = 1", Typed)


def test_what_is_left_out_takes_its_default() -> None:
    run = from_toml('dataset = "x"\n[optimiser]\nlr = 1\n[stages.acr]\nqueries = 2', Run, tables=TABLES)
    assert run == Run("x", optimiser=Optimiser(lr=1.0), stages={"acr": Bare(2), "mean-teacher": Other()})
    assert type(run.optimiser.lr) is float
    assert from_toml('dataset = "x"', Run, tables=TABLES).stages == {"acr": Bare(), "mean-teacher": Other()}
    assert from_toml('[inner]\ndataset = "x"', Strict) == Strict(Run("x"), None)
    with pytest.raises(InputError, match=r"run\.toml: inner\.dataset is missing; expected text"):
        from_toml("", Strict)


def test_without_tables_a_dict_of_any_keeps_what_the_file_has() -> None:
    run = from_toml('dataset = "x"\n[stages.acr]\nqueries = 2', Run)
    assert run.stages == {"acr": {"queries": 2}}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("stepz = 3", "unknown setting stepz; did you mean steps?"),
        ("[optimizer]\nlr = 1", "unknown setting optimizer; did you mean optimiser?"),
        ("[optimiser]\nnestrov = 1", "did you mean optimiser.nesterov?"),
        ("[optimiser]\nzzz = 1", "unknown setting optimiser.zzz; choose one of optimiser.kind, optimiser.lr"),
        ("lr = 1", "unknown setting lr; did you mean optimiser.lr?"),
        ("derived = 7", "unknown setting derived"),
        ("[stages.acx]", "unknown setting stages.acx; did you mean stages.acr"),
        ("[stages.acr]\nquerys = 1", "unknown setting stages.acr.querys; did you mean stages.acr.queries?"),
        ('steps = "3"', 'steps: expected a whole number, found "3"'),
        ("steps = true", "steps: expected a whole number, found true"),
        ("steps = 3.0", "steps: expected a whole number, found 3.0"),
        ("steps = 2026-01-01", 'steps: expected a whole number, found "2026-01-01"'),
        ("ratio = true", "ratio: expected a number or none, found true"),
        ("warm = nan", "warm: expected a number or none, found NaN"),
        ("warm = 1" + "0" * 400, "warm: expected a number or none, found 1000"),
        ("size = [1]", "size: expected 2 values, each a whole number, found [1]"),
        ("size = 3", "size: expected 2 values, each a whole number, found 3"),
        ('size = "12"', "size: expected 2 values, each a whole number"),
        ("pair = [1, 1]", "pair: expected 2 values, each text or a whole number, found [1, 1]"),
        ("numbers = [1, 2.5]", "numbers: expected any number of values, each a whole number"),
        ("level = true", "level: expected one of 0, 1, found true"),
        ('width = "wide"', 'width: expected a whole number or auto, found "wide"'),
        ("optimiser = 3", "optimiser: expected a table, found 3"),
        ("[steps]\na = 1", "steps: expected a whole number, found a table"),
        ("stages = 3", "stages: expected a table, found 3"),
        ('[optimiser]\nkind = "adam"', 'optimiser.kind: expected one of sgd, adamw, found "adam"'),
        ("[optimiser]\nlr = -1", "mine.toml, optimiser: expected lr >= 0, found -1.0"),
        ("steps 3", "mine.toml is not TOML:"),
        ("steps = " + "9" * 5000, "mine.toml is not TOML:"),
        ("steps = " + "[" * 5000, "mine.toml is not TOML:"),
    ],
)  # fmt: skip
def test_a_file_with_a_mistake_is_refused_with_its_place(line: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        from_toml(f'dataset = "x"\n{line}', Run, source="mine.toml", tables=TABLES)
    assert message in str(caught.value) and str(caught.value).startswith("mine.toml")


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("steps", "3", 3),
        ("steps", " -3 ", -3),
        ("optimiser.lr", "1e-3", 1e-3),
        ("optimiser.lr", "2", 2.0),
        *[("optimiser.nesterov", word, True) for word in ("true", "yes", "on", "True")],
        *[("optimiser.nesterov", word, False) for word in ("false", "no", "off", "OFF")],
        ("optimiser.kind", " adamw ", "adamw"),
        ("level", "0", 0),
        ("dataset", "a=b c", "a=b c"),
        ("dataset", "", ""),
        ("size", "96x64", (96, 64)),
        ("size", "96, 64", (96, 64)),
        ("range", "0.5x1", (0.5, 1.0)),
        ("pair", "six,6", ("six", 6)),
        ("numbers", "1,2,3", (1, 2, 3)),
        ("numbers", "", ()),
        ("ratio", "none", None),
        ("ratio", "0.05", 0.05),
        ("name", "None", None),
        ("name", "nonesuch", "nonesuch"),
        ("width", "auto", "auto"),
        ("width", "8", 8),
        ("tag", "8", 8),
        ("tag", "8a", "8a"),
        ("stages.acr.queries", "5", 5),
        ("acr.queries", "5", 5),
        ("mean-teacher.principles", "a", ("a",)),
        ("mean-teacher.principles", "", ()),
    ],
)  # fmt: skip
def test_a_setting_by_name(key: str, text: str, value: Any) -> None:
    changed = with_value(RUN, key, text)
    found: Any = changed
    for name in key.split(".") if key.split(".")[0] not in RUN.stages else ["stages", *key.split(".")]:
        found = found[name] if isinstance(found, dict) else getattr(found, name)
    assert found == value and type(found) is type(value)
    assert from_toml(to_toml(changed), Run, tables=TABLES) == changed
    assert Run("acdc", stages={"acr": Bare(), "mean-teacher": Other()}) == RUN  # untouched


def test_only_the_named_setting_changes() -> None:
    assert with_value(RUN, "acr.queries", "5") == replace(RUN, stages={**RUN.stages, "acr": Bare(queries=5)})


@settings(deadline=None)
@given(finite, st.integers())
def test_numbers_are_spelled_as_python_spells_them(number: float, whole: int) -> None:
    run = with_value(with_value(RUN, "ratio", repr(number)), "size", f"{whole}x{-whole}")
    assert (run.ratio, run.size) == (number, (whole, -whole))


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("optimizer.lr", "1", "unknown setting; did you mean optimiser.lr?"),
        ("lr", "1", "did you mean optimiser.lr?"),
        ("acr.querries", "1", "did you mean acr.queries?"),
        ("stages.acr.querries", "1", "did you mean stages.acr.queries?"),
        ("optimiser.lr.x", "1", "did you mean optimiser.lr?"),
        ("derived", "1", "unknown setting"),
        ("", "1", "unknown setting; choose one of dataset, steps"),
        ("qqq", "1", "choose one of dataset, steps, size"),
        (
            "optimiser",
            "adamw",
            "this is a table of settings; set one of optimiser.kind, optimiser.lr, optimiser.nesterov",
        ),
        ("acr", "1", "this is a table of settings; set one of acr.queries, acr.weight"),
        ("steps", "many", "--set steps=many: expected a whole number"),
        ("steps", "1.5", "expected a whole number"),
        ("steps", "", "expected a whole number"),
        ("optimiser.lr", "fast", "expected a number"),
        ("optimiser.lr", "nan", "expected a number"),
        ("optimiser.lr", "none", "expected a number"),
        ("optimiser.lr", "-1", "expected lr >= 0, found -1.0"),
        ("optimiser.nesterov", "1", "expected true or false"),
        ("optimiser.kind", "adam", "expected one of sgd, adamw"),
        ("size", "96", "expected 2 values written like 96x96, each a whole number"),
        ("size", "96x", "expected 2 values"),
        ("mean-teacher.principles", "a,,b", "expected any number of values separated by commas, each text"),
        ("ratio", "all", "expected a number or none"),
        ("dataset", "\udcff", "expected text"),
        ("shares", "1", "expected a table"),
    ],
)
def test_a_setting_that_cannot_be(key: str, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        with_value(RUN, key, text)
    assert message in str(caught.value)
