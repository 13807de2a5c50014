import pytest
import torch
from torch.nn import functional

from neuro_pe.encodings import make_encoding
from neuro_pe.masking import uniform_masks
from neuro_pe.transformer import Block, MaskedRegionTransformer, take_regions

N_REGIONS, WINDOW = 12, 6


def make_network(encoding="learn", seed=0, sigma=0.5):
    return MaskedRegionTransformer(
        window=WINDOW,
        width=16,
        layers=2,
        heads=4,
        encoding=make_encoding(encoding, n_regions=N_REGIONS, width=16, sigma=sigma),
        generator=torch.Generator().manual_seed(seed),
    )


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(5)
    windows = torch.randn(3, N_REGIONS, WINDOW, generator=generator)
    return windows, *uniform_masks(3, N_REGIONS, 0.6, generator)


def test_predictions_have_the_shape_of_the_hidden_windows(batch):
    windows, visible, hidden = batch
    assert make_network()(windows, visible, hidden).shape == (3, hidden.shape[1], WINDOW)


def test_hidden_values_never_leak(batch):
    windows, visible, hidden = batch
    network = make_network()
    before = network(windows, visible, hidden)
    index = hidden[..., None].expand(-1, -1, WINDOW)
    spoiled = windows.scatter(1, index, torch.full((*hidden.shape, WINDOW), 1e6))
    assert torch.equal(before, network(spoiled, visible, hidden))
    # The visible ones do matter.
    assert not torch.equal(before, network(windows + 1, visible, hidden))


def test_without_an_encoding_region_order_means_nothing(batch):
    windows, visible, hidden = batch
    network = make_network("nope")
    order = torch.randperm(N_REGIONS, generator=torch.Generator().manual_seed(9))
    place = order.argsort()
    shuffled = network(windows[:, order], place[visible], place[hidden])
    torch.testing.assert_close(shuffled, network(windows, visible, hidden))
    # A hidden region cannot be told from another.
    predicted = network(windows, visible, hidden)
    torch.testing.assert_close(predicted, predicted[:, :1].expand_as(predicted))


def test_with_an_encoding_regions_are_told_apart(batch):
    predicted = make_network("learn")(*batch)
    assert (predicted[:, :1] - predicted[:, 1:]).abs().amax(dim=-1).min() > 1e-3


def test_a_block_is_attention_written_out():
    generator = torch.Generator().manual_seed(2)
    block = Block(16, 4)
    tokens, context = (torch.randn(2, n, 16, generator=generator) for n in (3, 5))
    reference = torch.nn.MultiheadAttention(16, 4, batch_first=True)
    with torch.no_grad():
        parts = (block.query, block.key, block.value)
        reference.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        reference.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
        reference.out_proj.load_state_dict(block.out.state_dict())
    seen = block.norm_context(context)
    attended, maps = reference(block.norm_query(tokens), seen, seen, average_attn_weights=False)
    torch.testing.assert_close(block.attention(tokens, context), maps)
    expected = tokens + attended
    inner = functional.gelu(block.mlp_in(block.norm_mlp(expected)))
    torch.testing.assert_close(block(tokens, context), expected + block.mlp_out(inner))


def test_attention_maps_belong_to_the_layers_in_turn(batch):
    windows, visible, _ = batch
    network = make_network()
    maps = network.attention_maps(windows, visible)
    n_visible = visible.shape[1]
    assert maps.shape == (2, 3, 4, n_visible, n_visible)
    torch.testing.assert_close(maps.sum(dim=-1), torch.ones(2, 3, 4, n_visible))
    tokens = network.embed(take_regions(windows, visible)) + network.encoding()[visible]
    tokens = network.encoder[0](tokens, tokens)
    torch.testing.assert_close(maps[1], network.encoder[1].attention(tokens, tokens))


def test_the_seed_decides_all_weights():
    first, same, other = (make_network(seed=seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[name], same[name]) for name in first)
    drawn = [name for name in first if "norm" not in name]
    assert not any(torch.equal(first[name], other[name]) for name in drawn)


def test_muon_gets_the_blocks_matrices_only():
    network = make_network()
    inside = {id(parameter) for parameter in network.block_matrices()}
    names = {name for name, parameter in network.named_parameters() if id(parameter) in inside}
    assert len(names) == 3 * 6
    assert all(name.split(".")[0] in ("encoder", "decoder") for name in names)


def test_take_regions_picks_by_window():
    windows = torch.arange(12.0).reshape(2, 3, 2)
    picked = take_regions(windows, torch.tensor([[2], [0]]))
    assert picked.tolist() == [[[4.0, 5.0]], [[6.0, 7.0]]]


def test_bfloat16_is_close_to_float32(batch):
    network = make_network()
    exact = network(*batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = network(*batch)
    assert rounded.dtype == torch.bfloat16
    torch.testing.assert_close(rounded.float(), exact, atol=0.05, rtol=0.05)
