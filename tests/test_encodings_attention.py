"""Encodings that take a hand in the attention."""

import numpy as np
import pytest
import torch
from encoding_inputs import COLUMNS, INPUTS, ROWS, at, heads, make

from neuro_pe.encodings import AttentionEncoding, EncodingInputs, alibi_slopes
from neuro_pe.errors import InputError

XYZ = INPUTS["coordinates"]
CELLS = list(np.ndindex(2, 2, 3, 2))  # batch, head, row, column


def brain_distance():
    """Distances over the median distance of nearest neighbors."""
    distance = np.array([[sum((a - b) ** 2) ** 0.5 for b in XYZ] for a in XYZ])
    nearest = sorted(min(row[row > 0]) for row in distance)
    return distance / nearest[24]  # the lower of the two middle ones of 50


def plain_scores(query, key):
    return torch.einsum("bhrd,bhcd->bhrc", query, key) / 8**0.5


def test_scores_of_ones_own_decide_the_attention_in_float32():
    class Twice(AttentionEncoding):
        def scores(self, query, key, at):
            return 2 * super().scores(query, key, at)

    encoding = Twice(EncodingInputs(n_regions=50, width=16, heads=2))
    query, key, value = heads(3, 0), heads(2, 1), heads(2, 2)
    expected = (2 * plain_scores(query, key)).softmax(dim=-1) @ value
    with torch.autocast("cpu", dtype=torch.bfloat16):
        attended = encoding.attend(query, key, value, at(0))
    torch.testing.assert_close(attended, expected)


@pytest.mark.parametrize("name", ["alibi-3d", "t5-3d"])
def test_without_coordinates_the_error_says_why(name):
    with pytest.raises(InputError, match=f"'{name}' needs MNI coordinates"):
        make(name)


def test_alibi_slopes_are_those_of_the_paper():
    # Press et al., section 3: 8 heads from 1/2 to 1/256, 16 from 2^-0.5 to 2^-8.
    assert alibi_slopes(8).tolist() == [2.0**-n for n in range(1, 9)]
    assert alibi_slopes(16).tolist() == pytest.approx([2.0 ** -(n / 2) for n in range(1, 17)])
    # Their code with 6 heads: those of 4, then the first and third of 8.
    six = [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3]
    assert alibi_slopes(6).tolist() == six
    assert alibi_slopes(1).tolist() == [2.0**-8]


@pytest.mark.parametrize("name", ["alibi", "alibi-3d"])
def test_alibi_takes_slope_times_distance(name):
    encoding = make(name, **INPUTS)
    query, key = heads(3, 0), heads(2, 1)
    scores, plain = encoding.scores(query, key, at(0)), plain_scores(query, key)
    distance = brain_distance()
    for batch, head, row, column in CELLS:
        one, two = int(ROWS[batch, row]), int(COLUMNS[batch, column])
        far = abs(one - two) if name == "alibi" else distance[one, two]
        expected = plain[batch, head, row, column] - far * [1 / 16, 1 / 256][head]
        torch.testing.assert_close(scores[batch, head, row, column], expected)


def t5_bucket(distance, count):
    """The smallest distances have a bucket each; later ones start at exact * ratio^(n / rest)."""
    exact = rest = count // 2
    if distance < exact:
        return distance
    ratio = 128 // exact
    # distance >= exact * ratio^(n / rest), in whole numbers.
    fits = [n for n in range(rest) if distance**rest >= exact**rest * ratio**n]
    return exact + max(fits)


@pytest.mark.parametrize("name", ["t5", "t5-3d"])
def test_t5_adds_the_number_of_the_bucket(name):
    options = INPUTS | {"n_regions": 300}
    options["coordinates"] = np.random.default_rng(5).uniform(-70, 70, size=(300, 3))
    options["coordinates"][:50] = XYZ
    encoding = make(name, **options)
    rows = torch.arange(300)[None].expand(2, -1)
    zeros = torch.zeros(2, 2, 300, 8)
    scores = encoding.scores(zeros, zeros, at(1, rows, rows))
    table = encoding.table[1].detach()
    xyz = options["coordinates"]
    distance = np.sqrt(((xyz[:, None] - xyz) ** 2).sum(axis=2))
    unit = np.sort(np.sort(distance, axis=1)[:, 1])[149] / 4
    if name == "t5":
        index = np.arange(300)
        later = index[None, :] > index[:, None]
        bucket = np.array([t5_bucket(each, 16) for each in range(300)])
        bucket = bucket[np.abs(index[None, :] - index[:, None])] + 16 * later
    else:
        steps = (distance / unit).round().astype(int)
        bucket = np.array([t5_bucket(each, 32) for each in range(steps.max() + 1)])[steps]
    assert len(np.unique(bucket)) > 25
    np.testing.assert_array_equal(scores[1, 0].detach(), table[bucket, 0])
    np.testing.assert_array_equal(scores[0, 1].detach(), table[bucket, 1])


MANY_ROWS = torch.tensor([[0, 7, 30, 12], [45, 3, 49, 20]])
MANY_COLUMNS = torch.tensor([[8, 1, 30, 7, 48, 12], [45, 0, 21, 20, 3, 19]])


def check_scores_and_attention(encoding, expected):
    """Compare with a formula of scores that is given one window and one head at a time."""
    query, key, value = heads(4, 0), heads(6, 1), heads(6, 2)
    many = at(2, MANY_ROWS, MANY_COLUMNS)
    scores = encoding.scores(query, key, many).detach()
    wanted = torch.tensor(np.array([expected(query, key, batch) for batch in range(2)])).float()
    torch.testing.assert_close(scores, wanted, atol=1e-5, rtol=1e-5)
    attended = encoding.attend(query, key, value, many).detach()
    torch.testing.assert_close(attended, wanted.softmax(dim=-1) @ value)


def test_cope_counts_gates_and_interpolates():
    encoding = make("cope", **(INPUTS | {"n_regions": 50}))
    with torch.no_grad():
        encoding.vectors.mul_(3)
    encoding.n_positions = 4  # so that some positions are beyond the last
    tables = encoding.vectors[2, :, :4].detach().numpy().astype(float)
    encoding.vectors = torch.nn.Parameter(encoding.vectors[:, :, :4].detach().clone())
    reached = set()

    def expected(query, key, batch):
        scores = np.empty((2, 4, 6))
        columns = MANY_COLUMNS[batch].tolist()
        for head, row, column in np.ndindex(2, 4, 6):
            q = query[batch, head, row].numpy().astype(float)
            keys = key[batch, head].numpy().astype(float)
            one, two = int(MANY_ROWS[batch, row]), columns[column]
            between = [k for k in range(6) if min(one, two) <= columns[k] <= max(one, two)]
            position = sum(1 / (1 + np.exp(-(q @ keys[k]) / 8**0.5)) for k in between)
            position = min(position, 3)
            low, high = int(np.floor(position)), int(np.ceil(position))
            reached.add(low)
            table = tables[0] if two <= one else tables[1]
            share = position - low
            vector = share * table[high] + (1 - share) * table[low]
            scores[head, row, column] = (q @ keys[column] + q @ vector) / 8**0.5
        return scores

    check_scores_and_attention(encoding, expected)
    assert reached == {0, 1, 2, 3}


def test_dape_convolves_scores_and_biases_of_all_heads():
    encoding = make("dape", **INPUTS)
    layers = {name: each[2].detach().numpy() for name, each in encoding.layers.items()}

    def convolve(maps, side):
        """Over three neighbors in the table; beyond its ends there are zeros."""
        weight, bias = layers[f"weight_{side}"][:, :, 0], layers[f"bias_{side}"]
        result = np.empty((len(bias), *maps.shape[1:]))
        for out, row, column in np.ndindex(*result.shape):
            total = bias[out]
            for channel, step in np.ndindex(len(maps), 3):
                if 0 <= column + step - 1 < maps.shape[2]:
                    total += weight[out, channel, step] * maps[channel, row, column + step - 1]
            result[out, row, column] = total
        return result

    def expected(query, key, batch):
        columns = MANY_COLUMNS[batch].numpy()
        order = np.argsort(columns)
        plain = plain_scores(query, key)[batch].numpy()[:, :, order]
        bias = np.empty_like(plain)
        for head, row, column in np.ndindex(2, 4, 6):
            far = abs(int(MANY_ROWS[batch, row]) - columns[order][column])
            bias[head, row, column] = -far * [1 / 16, 1 / 256][head]
        hidden = convolve(np.concatenate([plain, bias]), "in")
        total = plain + bias + convolve(np.where(hidden > 0, hidden, 0.01 * hidden), "out")
        return total[:, :, np.argsort(order)]

    check_scores_and_attention(encoding, expected)
