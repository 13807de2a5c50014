import numpy as np
import pytest
import torch
from torch.nn import functional

from neuro_pe.encodings import Places, make_encoding
from neuro_pe.masking import uniform_masks
from neuro_pe.settings import ENCODINGS
from neuro_pe.transformer import Block, MaskedRegionTransformer, take_regions

N_REGIONS, WINDOW = 12, 6


def all_inputs(*, n_regions, width, heads):
    """All that any encoding may ask for."""
    rng = np.random.default_rng(3)
    return {
        "n_regions": n_regions,
        "width": width,
        "heads": heads,
        "coordinates": rng.uniform(-70, 70, size=(n_regions, 3)),
        "grid": (2, n_regions // 2),
        "connectivity": np.corrcoef(rng.normal(size=(n_regions, 40))),
    }


def make_network(encoding="learn", seed=0, sigma=0.5, n_encodings=1, heads=2, **options):
    inputs = all_inputs(n_regions=N_REGIONS, width=16, heads=heads)
    return MaskedRegionTransformer(
        window=WINDOW,
        width=16,
        layers=2,
        heads=heads,
        encodings=[
            make_encoding(encoding, **inputs, n_blocks=3, sigma=sigma) for _ in range(n_encodings)
        ],
        generator=torch.Generator().manual_seed(seed),
        **options,
    )


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(5)
    windows = torch.randn(3, N_REGIONS, WINDOW, generator=generator)
    return windows, *uniform_masks(3, N_REGIONS, 0.6, generator)


def test_predictions_have_the_shape_of_the_hidden_windows(batch):
    windows, visible, hidden = batch
    assert make_network()(windows, visible, hidden).shape == (3, hidden.shape[1], WINDOW)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("design", ["cross-attention", "bert"])
def test_hidden_values_never_leak(batch, design, encoding):
    windows, visible, hidden = batch
    network = make_network(encoding, design=design)
    before = network(windows, visible, hidden)
    index = hidden[..., None].expand(-1, -1, WINDOW)
    spoiled = windows.scatter(1, index, torch.full((*hidden.shape, WINDOW), 1e6))
    assert torch.equal(before, network(spoiled, visible, hidden))
    # The visible ones do matter.
    assert not torch.equal(before, network(windows + 1, visible, hidden))


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("design", ["cross-attention", "bert"])
def test_without_an_encoding_region_order_means_nothing(batch, design, norm):
    windows, visible, hidden = batch
    network = make_network("nope", design=design, norm=norm)
    order = torch.randperm(N_REGIONS, generator=torch.Generator().manual_seed(9))
    place = order.argsort()
    shuffled = network(windows[:, order], place[visible], place[hidden])
    torch.testing.assert_close(shuffled, network(windows, visible, hidden))
    # A hidden region cannot be told from another.
    predicted = network(windows, visible, hidden)
    torch.testing.assert_close(predicted, predicted[:, :1].expand_as(predicted))


@pytest.mark.parametrize("encoding", [name for name in ENCODINGS if name != "nope"])
def test_with_an_encoding_regions_are_told_apart(batch, encoding):
    predicted = make_network(encoding)(*batch)
    # The first and the last: causal attention gives early regions nothing to differ by.
    assert (predicted[:, 0] - predicted[:, -1]).abs().amax(dim=-1).min() > 1e-3


def reference_attention(block):
    reference = torch.nn.MultiheadAttention(16, 4, batch_first=True)
    with torch.no_grad():
        parts = (block.query, block.key, block.value)
        reference.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        reference.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
        reference.out_proj.load_state_dict(block.out.state_dict())
    return reference


def test_a_block_is_attention_written_out():
    generator = torch.Generator().manual_seed(2)
    block = Block(16, 4)
    tokens, context = (torch.randn(2, n, 16, generator=generator) for n in (3, 5))
    seen = block.norm_context(context)
    attended, _ = reference_attention(block)(block.norm_query(tokens), seen, seen)
    expected = tokens + attended
    inner = functional.gelu(block.mlp_in(block.norm_mlp(expected)))
    torch.testing.assert_close(block(tokens, context), expected + block.mlp_out(inner))


def test_a_post_norm_block_is_pytorchs_encoder_layer():
    block = Block(16, 4, norm="post")
    tokens = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(2))
    layer = torch.nn.TransformerEncoderLayer(
        16, 4, dim_feedforward=64, dropout=0.0, activation="gelu", batch_first=True
    )
    layer.self_attn = reference_attention(block)
    layer.linear1, layer.linear2 = block.mlp_in, block.mlp_out
    torch.testing.assert_close(block(tokens, tokens), layer(tokens))


def test_attention_maps_belong_to_the_layers_in_turn(batch):
    windows, visible, _ = batch
    network = make_network()
    maps = network.attention_maps(windows, visible)
    n_visible = visible.shape[1]
    assert maps.shape == (2, 3, 2, n_visible, n_visible)
    torch.testing.assert_close(maps.sum(dim=-1), torch.ones(2, 3, 2, n_visible))
    tokens = network.embed(take_regions(windows, visible)) + network.encodings[0]()[visible]
    tokens = network.encoder[0](tokens, tokens)
    query, key = network.encoder[1].query_and_key(tokens, tokens)
    expected = (query @ key.mT / query.shape[-1] ** 0.5).softmax(dim=-1)
    torch.testing.assert_close(maps[1], expected)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_attention_maps_are_what_the_ordinary_path_attends_with(batch, encoding):
    windows, visible, _ = batch
    network = make_network(encoding)
    maps = network.attention_maps(windows, visible)
    if encoding == "relative-causal":
        assert (maps.triu(diagonal=1) == 0).all()
    torch.testing.assert_close(maps.sum(dim=-1), torch.ones(maps.shape[:-1]))
    # Values that are one in one column only come out as the weight of that column.
    values = torch.zeros(3, 2, visible.shape[1], 8)
    values[:, :, 1] = 1
    tokens = network.embed(take_regions(windows, visible))
    first = network.encodings[0]
    if (vectors := first()) is not None:
        tokens = tokens + vectors[visible]
    pair = network.encoder[0].query_and_key(tokens, tokens)
    at = Places(rows=visible, columns=visible, block=0)
    attended = first.attend(*pair, values, at)
    if encoding == "relative":
        attended = attended - first.attend(*pair, torch.zeros_like(values), at)
    torch.testing.assert_close(attended, maps[0][..., 1:2].expand_as(attended))


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("design", ["cross-attention", "bert"])
def test_all_that_is_learned_gets_a_gradient(batch, design, encoding):
    network = make_network(encoding, design=design)
    network(*batch).square().mean().backward()
    for name, parameter in network.named_parameters():
        if parameter.requires_grad and not name.endswith("key.bias"):  # no row's softmax sees it
            assert parameter.grad is not None, name
            assert parameter.grad.abs().sum() > 0, name


def test_every_block_has_an_encoding_of_its_own(batch):
    network = make_network("learn", n_encodings=3)
    assert network.positional_encoding().shape == (N_REGIONS, 3 * 16)
    before = network(*batch)
    for encoding in network.encodings:
        with torch.no_grad():
            encoding.vectors.mul_(1.5)
        after = network(*batch)
        assert not torch.equal(before, after)
        before = after


def test_the_readout_gain_scales_the_first_prediction(batch):
    plain, loud = make_network(), make_network(readout_gain=3.0)
    torch.testing.assert_close(loud(*batch), 3 * plain(*batch))


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


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("design", ["cross-attention", "bert"])
def test_bfloat16_is_close_to_float32(batch, design, encoding):
    network = make_network(encoding, design=design)
    exact = network(*batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = network(*batch)
    assert rounded.dtype == torch.bfloat16
    torch.testing.assert_close(rounded.float(), exact, atol=0.05, rtol=0.05)
    rounded.float().square().mean().backward()
    learned = [each for each in network.parameters() if each.requires_grad]
    assert all(each.grad.isfinite().all() for each in learned)
