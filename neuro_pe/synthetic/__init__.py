"""Tasks with an exact ground truth, to see what positional encodings learn.

The Latin Square Task: puzzles of a known solution and complexity, whose places form a grid.
"""

from neuro_pe.synthetic._puzzles_files import load_puzzles, read_puzzles, write_puzzles
from neuro_pe.synthetic._puzzles_generator import generate_puzzles
from neuro_pe.synthetic.lst import (
    LatinSquareFit,
    PuzzleSplits,
    fit_lst,
    lst_settings,
    split_puzzles,
)
from neuro_pe.synthetic.lst_folder import LatinSquareFolder, read_lst_folder
from neuro_pe.synthetic.lst_report import lst_text, write_lst_report
from neuro_pe.synthetic.lst_sweep import LatinSquareSweep, sweep_lst
from neuro_pe.synthetic.puzzles import (
    CONDITIONS,
    Puzzles,
    classify,
    jaccard_dissimilarity,
    solve,
)

__all__ = [
    "CONDITIONS",
    "LatinSquareFit",
    "LatinSquareFolder",
    "LatinSquareSweep",
    "PuzzleSplits",
    "Puzzles",
    "classify",
    "fit_lst",
    "generate_puzzles",
    "jaccard_dissimilarity",
    "load_puzzles",
    "lst_settings",
    "lst_text",
    "read_lst_folder",
    "read_puzzles",
    "solve",
    "split_puzzles",
    "sweep_lst",
    "write_lst_report",
    "write_puzzles",
]
