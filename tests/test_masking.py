import pytest
import torch

from neuro_pe.masking import n_visible_regions, uniform_masks


@pytest.mark.parametrize(
    ("n_regions", "mask_ratio", "expected"),
    [(360, 0.9, 36), (360, 0.15, 306), (2, 0.99, 1), (2, 0.01, 1), (10, 0.96, 1)],
)
def test_something_is_visible_and_something_hidden(n_regions, mask_ratio, expected):
    assert n_visible_regions(n_regions, mask_ratio) == expected


def test_masks_part_the_regions_evenly():
    visible, hidden = uniform_masks(4000, 10, 0.7, torch.Generator().manual_seed(0))
    assert visible.shape == (4000, 3)
    together = torch.cat([visible, hidden], dim=1).sort(dim=1).values
    assert (together == torch.arange(10)).all()
    share = torch.bincount(hidden.ravel(), minlength=10) / 4000
    torch.testing.assert_close(share, torch.full((10,), 0.7), atol=0.03, rtol=0)
