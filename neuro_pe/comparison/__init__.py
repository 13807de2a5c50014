"""What an encoding learned, measured against network partitions of the brain.

Arrays and tables in, tables out: nothing here knows of models, files or figures.
"""

from neuro_pe.comparison._compare import (
    SourceComparison,
    communities_for,
    compare_networks,
    compare_source,
    null_rows,
    tabulate,
)
from neuro_pe.comparison._draws import correlation_draws, procrustes_draws
from neuro_pe.comparison._matching import match_partition
from neuro_pe.comparison._modularity import (
    RESOLUTIONS,
    Communities,
    find_communities,
    modularity,
)
from neuro_pe.comparison._nulls import label_permutations, null_permutations, spin_permutations
from neuro_pe.comparison._predictors import compare_predictors
from neuro_pe.comparison._similarity import (
    cosine_similarity,
    matrix_correlation,
    procrustes_distance,
)

__all__ = [
    "RESOLUTIONS",
    "Communities",
    "SourceComparison",
    "communities_for",
    "compare_networks",
    "compare_predictors",
    "compare_source",
    "correlation_draws",
    "cosine_similarity",
    "find_communities",
    "label_permutations",
    "match_partition",
    "matrix_correlation",
    "modularity",
    "null_permutations",
    "null_rows",
    "procrustes_distance",
    "procrustes_draws",
    "spin_permutations",
    "tabulate",
]
