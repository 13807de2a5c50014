"""Latin Square Task puzzles: rules, generator, likeness, files; checked by brute force."""

import dataclasses
import itertools
from collections import Counter

import numpy as np
import pytest

from neuro_pe.errors import InputError
from neuro_pe.synthetic import (
    CONDITIONS,
    _puzzles_generator,
    classify,
    generate_puzzles,
    jaccard_dissimilarity,
    load_puzzles,
    read_puzzles,
    solve,
    write_puzzles,
)

HEADER = "ID,LST_num,condition,puzzles,solutions\n"


@pytest.fixture(scope="module")
def human():
    return load_puzzles("human")


@pytest.fixture(scope="module")
def training():
    return load_puzzles("training")


@pytest.fixture(scope="module")
def squares():
    """All 576 Latin squares of size 4, one a row."""
    orders = list(itertools.permutations((1, 2, 3, 4)))
    whole = [
        rows
        for rows in itertools.product(orders, repeat=3)
        if all(len(set(column)) == 3 for column in zip(*rows, strict=True))
    ]
    last = [[10 - sum(column) for column in zip(*rows, strict=True)] for rows in whole]
    return np.concatenate([np.reshape(whole, (-1, 12)), np.array(last)], axis=1)


@pytest.fixture
def thinned(rng):
    """Puzzles with givens removed at random: some take several steps, some have no answer."""

    def thin(size, n_puzzles):
        cells = generate_puzzles(n_puzzles, complexity=1, size=size).cells.copy()
        cells[(cells <= size) & (rng.random(cells.shape) < 0.25)] = 0
        return cells

    return thin


def symbols_at_target(puzzle, squares):
    """The symbols at the target in the squares that have the givens."""
    flat = puzzle.ravel()
    given = (flat > 0) & (flat < 5)
    fits = (squares[:, given] == flat[given]).all(axis=1)
    return set(squares[fits, (flat == 5).argmax()].tolist())


def least_vectors(puzzle, squares):
    """The least number of rows and columns whose givens alone leave one symbol at the target."""
    lines = [(axis, index) for axis in (0, 1) for index in range(4)]
    for count in (1, 2, 3):
        for chosen in itertools.combinations(lines, count):
            shown = np.where(puzzle == 5, 5, 0)
            for axis, index in chosen:
                line = (index, slice(None)) if axis == 0 else (slice(None), index)
                shown[line] = puzzle[line]
            if len(symbols_at_target(shown, squares)) == 1:
                return count
    return 0


def completions(puzzle):
    """All completions of a puzzle of any size, cell by cell; the symbols at its target."""
    n = len(puzzle)
    board = np.where(puzzle == n + 1, 0, puzzle).tolist()
    target = tuple(np.argwhere(puzzle == n + 1)[0])
    # The target first, then one completion for each of its symbols is enough.
    open_cells = [target] + [
        cell for cell in np.ndindex(n, n) if board[cell[0]][cell[1]] == 0 and cell != target
    ]

    def fill(depth):
        if depth == len(open_cells):
            return True
        r, c = open_cells[depth]
        for symbol in range(1, n + 1):
            if symbol in board[r] or any(board[k][c] == symbol for k in range(n)):
                continue
            board[r][c] = symbol
            found = fill(depth + 1)
            board[r][c] = 0
            if depth == 0 and found:
                symbols.add(symbol)
            elif found:
                return True
        return False

    symbols = set()
    fill(0)
    return symbols


def test_solutions_and_complexity_of_the_bundled_puzzles(human, training, squares):
    for puzzles, n_each in ((human, 36), (training, 3000)):
        assert Counter(puzzles.complexity.tolist()) == {1: n_each, 2: n_each, 3: n_each}
        assert (classify(puzzles.cells) == puzzles.complexity).all()
        assert (solve(puzzles.cells) == puzzles.solutions).all()
        for puzzle, solution in zip(puzzles.cells, puzzles.solutions, strict=True):
            assert symbols_at_target(puzzle, squares) == {int(solution)}


def test_bundled_files_say_what_is_deduced(human, training):
    # A file with another label is refused, so what was read is what the files say; count it once.
    assert len(human) == 108
    assert np.bincount(human.items)[1:].tolist() == [3] * 36
    assert len(training) == 9000
    assert not training.items.any()
    assert len(np.unique(training.cells, axis=0)) == 9000


def test_complexity_is_the_least_number_of_vectors(human, training, squares):
    least = [least_vectors(puzzle, squares) for puzzle in human.cells]
    assert least == human.complexity.tolist()
    # Two vectors and two steps (the row's only other blank, then the target) count as Quaternary
    # if a single step of exclusion does it as well.
    some = training.select(slice(0, None, 30))
    least = np.array([least_vectors(puzzle, squares) for puzzle in some.cells])
    assert (least[some.complexity < 3] == some.complexity[some.complexity < 3]).all()
    assert set(least[some.complexity == 3].tolist()) == {2, 3}


def test_one_other_blank_is_no_single_step():
    puzzle = np.array([[1, 2, 0, 5], [0, 0, 3, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
    assert classify(puzzle[None]).tolist() == [0]
    assert solve(puzzle[None]).tolist() == [3]


@pytest.mark.parametrize(
    ("rows", "complexity"),
    [
        (["12346", "00000", "00000", "00000", "00000"], 1),
        (["12006", "00003", "00004", "00000", "00000"], 2),
        (["12006", "00300", "00030", "00000", "00000"], 3),
        (["10006", "03000", "00300", "00030", "00000"], 4),
        (["00006", "30000", "03000", "00300", "00030"], 4),
        (["00006", "30000", "03000", "00300", "00000"], 0),
    ],
)
def test_vectors_of_larger_squares(rows, complexity):
    puzzle = np.array([[list(map(int, row)) for row in rows]])
    assert classify(puzzle).tolist() == [complexity]
    assert classify(puzzle.swapaxes(1, 2)).tolist() == [complexity]


def test_solve_by_several_steps_and_none(thinned, squares):
    cells = thinned(4, 300)
    truth = [symbols_at_target(puzzle, squares) for puzzle in cells]
    expected = [symbols.pop() if len(symbols) == 1 else 0 for symbols in truth]
    assert solve(cells).tolist() == expected
    one_step = classify(cells) > 0
    assert (~one_step & (solve(cells) > 0)).any(), "none takes several steps"
    assert (solve(cells)[one_step] > 0).all()


@pytest.mark.parametrize("size", [5, 6])
def test_solve_larger_squares(thinned, size):
    cells = thinned(size, 60)
    truth = [completions(puzzle) for puzzle in cells]
    expected = [symbols.pop() if len(symbols) == 1 else 0 for symbols in truth]
    assert 0 < sum(symbol == 0 for symbol in expected) < len(cells)
    assert solve(cells).tolist() == expected


@pytest.mark.parametrize(
    "digits",
    [
        "0000004110205002",
        "0340020500230000",
        "0050050631250000100040005",
        "304000030764500302000006612003063105",
    ],
)
def test_solve_where_only_trial_and_error_helps(digits):
    size = round(len(digits) ** 0.5)
    puzzle = np.array([int(digit) for digit in digits]).reshape(size, size)
    assert {int(solve(puzzle[None])[0])} == completions(puzzle)


def test_contradiction_has_no_solution():
    puzzle = np.array([[1, 2, 3, 5], [0, 0, 0, 4], [0, 0, 0, 0], [0, 0, 0, 0]])
    assert solve(puzzle[None]).tolist() == [0]


@pytest.mark.parametrize("size", [4, 5, 6, 7])
def test_generated_puzzles_are_what_was_asked_for(size):
    for complexity in range(1, size) if size < 7 else (6,):
        puzzles = generate_puzzles(800, complexity=complexity, size=size, seed=3)
        assert puzzles.cells.shape == (800, size, size)
        assert puzzles.cells.dtype == np.int8
        assert (puzzles.complexity == complexity).all()
        assert (classify(puzzles.cells) == complexity).all()
        assert (solve(puzzles.cells) == puzzles.solutions).all()
        assert len(np.unique(puzzles.cells, axis=0)) == 800
        # Targets and symbols are everywhere.
        assert ((puzzles.cells == size + 1).any(axis=0)).all()
        assert set(puzzles.solutions.tolist()) == set(range(1, size + 1))


def test_generated_puzzles_use_every_step():
    def symbols_in_line(complexity, axis):
        """How many symbols stand in the target's row (axis 1) or column (axis 0)."""
        cells = generate_puzzles(500, complexity=complexity, seed=2).cells
        line = (cells == 5).any(axis=1 + axis)
        return ((cells > 0) & (cells < 5)).sum(axis=1 + axis)[line]

    full_row, full_column = (symbols_in_line(1, axis) == 3 for axis in (1, 0))
    assert (full_row & ~full_column).any()
    assert (full_column & ~full_row).any()
    # Exclusion by three columns or rows, with no line for exclusion by two and the line itself.
    in_row, in_column = (symbols_in_line(3, axis) for axis in (1, 0))
    assert ((in_row == 0) & (in_column > 1)).any()
    assert ((in_row == 1) & (in_column > 1)).any()


def test_draws_follow_the_seed():
    first = generate_puzzles(50, complexity=3, seed=1)
    longer = generate_puzzles(4000, complexity=3, seed=1)
    assert (longer.cells[:50] == first.cells).all()
    assert not (generate_puzzles(50, complexity=3, seed=2).cells == first.cells).all()
    assert len(generate_puzzles(0, complexity=1)) == 0


def test_invariance(rng, human):
    sets = [human, *(generate_puzzles(100, complexity=3, size=size) for size in (5, 6))]
    for puzzles in sets:
        n = puzzles.size
        renamed = np.array([0, *(1 + rng.permutation(n)), n + 1])
        moved = puzzles.cells[:, rng.permutation(n)][:, :, rng.permutation(n)]
        turned = np.rot90(puzzles.cells, axes=(1, 2))
        for cells in (moved, turned, puzzles.cells.swapaxes(1, 2), renamed[puzzles.cells]):
            assert (classify(cells) == puzzles.complexity).all()
        assert (solve(moved) == puzzles.solutions).all()
        assert (solve(renamed[puzzles.cells]) == renamed[puzzles.solutions]).all()


def as_set(puzzle):
    return {(cell, int(symbol)) for cell, symbol in enumerate(puzzle.ravel()) if symbol}


def test_dissimilarity_is_that_of_sets(human, training):
    first, second = training.cells[::500], human.cells[::9]
    expected = [
        [1 - len(as_set(a) & as_set(b)) / len(as_set(a) | as_set(b)) for b in second] for a in first
    ]
    np.testing.assert_allclose(jaccard_dissimilarity(first, second), expected, atol=1e-15)
    assert (np.diag(jaccard_dissimilarity(first, first)) == 0).all()


def test_human_puzzles_are_unlike_the_training_puzzles(human, training):
    assert jaccard_dissimilarity(training.cells, human.cells).min() == 0.8125


@pytest.mark.parametrize("least", [0.6, 0.8])
def test_least_dissimilarity_is_held(human, least):
    plain = generate_puzzles(100, complexity=3, seed=4)
    assert jaccard_dissimilarity(plain.cells, human.cells).min() < least
    puzzles = generate_puzzles(
        100, complexity=3, seed=4, unlike=human.cells, min_dissimilarity=least
    )
    # Exactly so far is far enough, and does occur.
    assert jaccard_dissimilarity(puzzles.cells, human.cells).min() == least


def test_what_cannot_be_found_is_an_error(training, monkeypatch):
    monkeypatch.setattr(_puzzles_generator, "_PATIENCE", 2)
    with pytest.raises(InputError, match=r"found 0 puzzles .* expected 1; ask for fewer"):
        generate_puzzles(1, complexity=1, unlike=training.cells, min_dissimilarity=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"complexity": 4}, "complexity: found 4; expected a whole number from 1 to 3"),
        ({"complexity": 1, "size": 3}, "size: found 3; expected a whole number from 4 to 7"),
        ({"complexity": 1, "seed": -1}, "seed: found -1; expected a whole number of 0 or more"),
        ({"complexity": 1, "seed": 1.5}, "seed: found 1.5; expected a whole number"),
        ({"complexity": 1, "min_dissimilarity": 80}, "found 80; expected a share from 0 to 1"),
        ({"complexity": 1, "unlike": [[1, 2], [3, 4]]}, "shape"),
        ({"complexity": 1, "unlike": "all"}, "array of integers"),
    ],
)
def test_options_out_of_range(options, message):
    with pytest.raises(InputError, match=message):
        generate_puzzles(1, **options)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["1200", "0000", "0000", "0000"], "exactly one cell has to be 5"),
        (["1205", "0005", "0000", "0000"], "exactly one cell has to be 5"),
        (["1215", "0000", "0000", "0000"], "twice in a row"),
        (["1205", "1000", "0000", "0000"], "twice in a column"),
        (["1605", "0000", "0000", "0000"], "found another value"),
    ],
)
def test_what_is_no_puzzle(rows, message, human, tmp_path):
    cells = np.array([list(map(int, row)) for row in rows])
    with pytest.raises(InputError, match=f"puzzle 1: .*{message}"):
        solve(np.stack([human.cells[0], cells]))
    file = tmp_path / "puzzles.csv"
    file.write_text(HEADER + f"0,,,1235000000000000,4\n1,,,{''.join(rows)},\n")
    with pytest.raises(InputError, match=rf"puzzles.csv, line 3: .*{message}"):
        read_puzzles(file)


def test_shape_of_puzzles():
    with pytest.raises(InputError, match=r"shape \(puzzle, n, n\).*found \(4, 4\)"):
        classify(np.zeros((4, 4), dtype=int))
    with pytest.raises(InputError, match="found object in place of an array of integers"):
        classify(load_puzzles("human"))
    with pytest.raises(InputError, match="of 4 and of 5 rows"):
        jaccard_dissimilarity(
            generate_puzzles(1, complexity=1).cells,
            generate_puzzles(1, complexity=1, size=5).cells,
        )


@pytest.mark.parametrize("size", [4, 6])
def test_files_keep_puzzles(size, tmp_path, human):
    puzzles = human if size == 4 else generate_puzzles(20, complexity=5, size=size)
    file = tmp_path / "puzzles.csv"
    write_puzzles(puzzles, file)
    back = read_puzzles(file)
    for name in ("cells", "solutions", "complexity", "items"):
        np.testing.assert_array_equal(getattr(back, name), getattr(puzzles, name))
        assert getattr(back, name).dtype == getattr(puzzles, name).dtype


def test_written_as_the_authors_do(tmp_path, human):
    write_puzzles(human, tmp_path / "puzzles.csv")
    lines = (tmp_path / "puzzles.csv").read_text().splitlines()
    assert lines[:2] == [HEADER.strip(), "0,1,Binary,0040405210200030,1"]
    assert lines[-1].split(",")[:3] == ["107", "36", "Quaternary"]
    write_puzzles(generate_puzzles(1, complexity=4, size=5), tmp_path / "puzzles.csv")
    assert (tmp_path / "puzzles.csv").read_text().splitlines()[1].startswith("0,,Quinary,")


def test_empty_labels_are_deduced(tmp_path):
    file = tmp_path / "puzzles.csv"
    lines = "0,2.0,,1205000000000003,\n1,,Binary,1235000000000000,\n2,,,1205003000000000,3\n"
    file.write_text("\ufeff" + HEADER + lines, encoding="utf-8")
    assert len(read_puzzles(file)) == 3
    # A spreadsheet's mark at the beginning; columns in another order, without ID.
    columns = "solutions,puzzles,condition,LST_num\n"
    lines = ",1205000000000003,,2.0\n,1235000000000000,Binary,\n3,1205003000000000,,\n"
    file.write_text("\ufeff" + columns + lines, encoding="utf-8")
    puzzles = read_puzzles(file)
    assert puzzles.solutions.tolist() == [4, 4, 3]
    assert puzzles.complexity.tolist() == [2, 1, 0]
    assert puzzles.items.tolist() == [2, 0, 0]
    write_puzzles(puzzles, file)
    assert read_puzzles(file).complexity.tolist() == [2, 1, 0]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"solutions": [3, 3]}, "puzzle 0: solution 3, but puzzle .* has 1"),
        ({"complexity": [1, 3]}, "puzzle 1: condition Quaternary, but .* is Binary"),
        ({"complexity": [1, -1]}, "puzzle 1: complexity -1; expected 0 to 6"),
        ({"complexity": [9, 1]}, "puzzle 0: complexity 9; expected 0 to 6"),
        ({"solutions": [1]}, "puzzles: 2; expected as many"),
        ({"items": [np.nan, 1.0]}, "puzzle 0: LST_num nan"),
        ({"cells": np.zeros((2, 4, 4), int)}, "puzzle 0: puzzle 0000.*exactly one cell"),
        ({"cells": np.full((2, 4, 4), np.nan)}, "puzzle 0: puzzle nan.*digits"),
    ],
)
def test_wrong_labels_are_not_written(tmp_path, wrong, message):
    """They would be read by others; what stands in the file is kept."""
    sound = load_puzzles("human").select(slice(0, 2))
    file = tmp_path / "puzzles.csv"
    write_puzzles(sound, file)
    before = file.read_bytes()
    wrong = {name: np.asarray(value) for name, value in wrong.items()}
    with pytest.raises(InputError, match=message):
        write_puzzles(dataclasses.replace(sound, **wrong), file)
    assert file.read_bytes() == before


def test_a_complexity_of_none_is_a_label_too(tmp_path):
    sound = load_puzzles("human").select(slice(0, 2))
    wrong = dataclasses.replace(sound, complexity=np.zeros(2, dtype=np.int8))
    with pytest.raises(InputError, match="puzzle 0: complexity 0, but it has 1"):
        write_puzzles(wrong, tmp_path / "puzzles.csv")
    assert not list(tmp_path.iterdir())


def test_nothing_is_unlike_nothing(human):
    assert jaccard_dissimilarity(human.cells, human.cells[:0]).shape == (108, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column LST_num, condition, puzzles, solutions; expected the columns ID"),
        ("ID;puzzles\n", "separated by commas"),
        (HEADER, "no puzzles"),
        (HEADER + "0,,,40405210200030,1\n", "line 2: puzzle 4.* has 14 characters.*leading zeros"),
        (HEADER + "0,,,12a5000000000000,1\n", "line 2: puzzle 12a5000000000000 has 16.*digits"),
        (HEADER + "0,,,,\n", r"line 2: puzzle \(empty\)"),
        (HEADER + "0\n", r"line 2: puzzle \(empty\)"),
        (HEADER + "0,x,,1235000000000000,4\n", "line 2: LST_num x; expected a whole number"),
        (HEADER + "0,99999,,1235000000000000,4\n", "LST_num 99999; .* up to 32767 or nothing"),
        (HEADER + "0,,,1235000000000000,4,9\n", r"line 2: more cells than .* columns \(5\)"),
        (HEADER.replace("ID", "puzzles"), "two columns puzzles; expected one"),
        (HEADER + "0,,,1235000000000000,2\n", "line 2: solution 2, but puzzle 1.* has 4"),
        (HEADER + "0,,,1205000000000000,3\n", "line 2: puzzle 1.* leaves several symbols"),
        (HEADER + "0,,,1235000400000000,4\n", "line 2: puzzle 1.* or none"),
        (
            HEADER + "0,,Ternary,1235000000000000,4\n",
            "line 2: condition Ternary.* is Binary; leave",
        ),
        (HEADER + "0,,Ternary,1205003000000000,3\n", "line 2: .*several steps; leave it empty"),
        (
            HEADER + f"0,,,1235000000000000,4\n1,,,12346{'0' * 20},5\n",
            "line 3: a puzzle of size 5 among those of size 4",
        ),
    ],
)
def test_a_mistake_in_a_file_is_told_in_one_line(text, message, tmp_path):
    file = tmp_path / "puzzles.csv"
    file.write_text(text)
    with pytest.raises(InputError, match=rf"puzzles\.csv.*{message}") as told:
        read_puzzles(file)
    assert "\n" not in str(told.value)


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match=r"missing\.csv: No such file"):
        read_puzzles(tmp_path / "missing.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(InputError, match=r"binary\.csv: not a CSV file"):
        read_puzzles(tmp_path / "binary.csv")
    with pytest.raises(InputError, match="human or training; found people"):
        load_puzzles("people")


def test_conditions_name_every_complexity():
    assert CONDITIONS[:3] == ("Binary", "Ternary", "Quaternary")
    assert len(CONDITIONS) == 6
