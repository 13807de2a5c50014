"""Tasks with an exact ground truth, to see what positional encodings learn.

The Latin Square Task: puzzles of a known solution and complexity, whose places form a grid. NMAR:
a network whose modules and weights are known.
"""

from neuro_pe.synthetic._puzzles_files import load_puzzles, read_puzzles, write_puzzles
from neuro_pe.synthetic._puzzles_generator import generate_puzzles
from neuro_pe.synthetic.lst import (
    LatinSquareFit,
    fit_lst,
    lst_settings,
)
from neuro_pe.synthetic.lst_folder import LatinSquareFolder, read_lst_folder
from neuro_pe.synthetic.lst_report import lst_text, write_lst_report
from neuro_pe.synthetic.lst_sweep import LatinSquareSweep, sweep_lst
from neuro_pe.synthetic.nmar import (
    ModularNetwork,
    make_network,
    simulate,
    simulate_cohort,
)
from neuro_pe.synthetic.nmar_ceiling import NoiseCeiling
from neuro_pe.synthetic.nmar_report import nmar_text, write_nmar_report
from neuro_pe.synthetic.nmar_sweep import NmarSweep, nmar_settings, sweep_nmar
from neuro_pe.synthetic.puzzle_splits import PuzzleSplits, split_puzzles
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
    "ModularNetwork",
    "NmarSweep",
    "NoiseCeiling",
    "PuzzleSplits",
    "Puzzles",
    "classify",
    "fit_lst",
    "generate_puzzles",
    "jaccard_dissimilarity",
    "load_puzzles",
    "lst_settings",
    "lst_text",
    "make_network",
    "nmar_settings",
    "nmar_text",
    "read_lst_folder",
    "read_puzzles",
    "simulate",
    "simulate_cohort",
    "solve",
    "split_puzzles",
    "sweep_lst",
    "sweep_nmar",
    "write_lst_report",
    "write_nmar_report",
    "write_puzzles",
]
