"""What the tests of encodings build from and ask with."""

import numpy as np
import torch

from neuro_pe.encodings import Places, make_encoding

INPUTS = {
    "heads": 2,
    "n_blocks": 3,
    "grid": (5, 10),
    "coordinates": np.random.default_rng(0).uniform(-70, 70, size=(50, 3)),
    "connectivity": np.corrcoef(np.random.default_rng(1).normal(size=(50, 80))),
}
# Columns stand in any order.
ROWS, COLUMNS = torch.tensor([[0, 7, 30], [2, 3, 49]]), torch.tensor([[1, 7], [45, 0]])


def at(block, rows=ROWS, columns=COLUMNS):
    return Places(rows=rows, columns=columns, block=block)


def make(name, **options):
    return make_encoding(name, **({"n_regions": 50, "width": 16} | options))


def heads(n_tokens, seed):
    """Queries, keys or values of two windows and two heads of 8 dimensions."""
    return torch.randn(2, 2, n_tokens, 8, generator=torch.Generator().manual_seed(seed))
