import pytest
import torch

from neuro_pe.masking import grouped_masks, n_visible_regions, some_regions, uniform_masks


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


def test_grouped_masks_hide_whole_groups_but_one():
    groups = torch.tensor([0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2])
    visible, hidden = grouped_masks(500, groups, 0.6, torch.Generator().manual_seed(0))
    assert visible.shape == (500, 5)
    together = torch.cat([visible, hidden], dim=1).sort(dim=1).values
    assert (together == torch.arange(12)).all()
    sizes = torch.bincount(groups)
    for row in hidden:
        n_hidden = torch.bincount(groups[row], minlength=3)
        cut = ((n_hidden > 0) & (n_hidden < sizes)).sum()
        assert cut <= 1
    # Which regions of the cut group are hidden is up to chance, and so is the group.
    assert len({tuple(row.tolist()) for row in hidden}) > 20


def test_a_hemisphere_is_hidden_before_the_other():
    halves = torch.arange(10) % 2
    _, hidden = grouped_masks(50, halves, 0.7, torch.Generator().manual_seed(0))
    for row in hidden:
        assert sorted(torch.bincount(halves[row], minlength=2).tolist()) == [2, 5]


def test_some_regions_are_drawn_of_each_row_alike():
    regions = torch.arange(3, 33, 3).expand(4000, -1)
    drawn = some_regions(regions, 3, torch.Generator().manual_seed(0))
    assert drawn.shape == (4000, 3)
    assert (drawn.diff(dim=1) > 0).all()
    share = torch.bincount(drawn.ravel(), minlength=33)[3::3] / 4000
    torch.testing.assert_close(share, torch.full((10,), 0.3), atol=0.03, rtol=0)
    assert some_regions(regions, 10, torch.Generator()) is regions
