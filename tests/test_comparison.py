import ast
import warnings
from pathlib import Path

import networkx
import numpy as np
import pandas as pd
import pytest
from bct import community_louvain
from scipy.spatial import procrustes as scipy_procrustes
from scipy.spatial.transform import Rotation
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score

import neuro_pe
from neuro_pe import InputError, compare_networks
from neuro_pe.comparison import (
    compare_source,
    correlation_draws,
    cosine_similarity,
    find_communities,
    label_permutations,
    match_partition,
    matrix_correlation,
    modularity,
    null_permutations,
    null_rows,
    procrustes_distance,
    procrustes_draws,
    spin_permutations,
)
from neuro_pe.comparison._agreement import communities_agreement, network_structure

N_REGIONS = 60
NAMES = [f"{side}_{number}" for side in "LR" for number in range(N_REGIONS // 2)]


@pytest.fixture
def networks():
    labels = ["Vis"] * 9 + ["SomMot"] * 6 + ["Default"] * 11 + ["Limbic"] * 4
    return pd.Series(labels * 2, index=NAMES, name="yeo7")


@pytest.fixture
def encoding(rng, networks):
    centres = {name: rng.normal(size=12) for name in sorted(set(networks))}
    rows = [1.2 * centres[name] + rng.normal(size=12) + 3.0 for name in networks]
    return pd.DataFrame(rows, index=NAMES)


@pytest.fixture
def coordinates(rng):
    xyz = rng.normal(size=(N_REGIONS, 3)) * [12, 40, 25]
    xyz[:, 0] = np.abs(xyz[:, 0]) * np.repeat([-1, 1], N_REGIONS // 2)
    table = pd.DataFrame(xyz, columns=["x", "y", "z"])
    return table.assign(name=NAMES, hemisphere=[name[0] for name in NAMES])


@pytest.fixture
def signed(rng):
    values = rng.normal(size=(40, 8)) + np.repeat(rng.normal(size=(4, 8)), 10, axis=0)
    return cosine_similarity(values)


def value_of(table, statistic, *, network="all", source="pe", null="label_permutation"):
    rows = table[
        (table["statistic"] == statistic)
        & (table["network"] == network)
        & (table["source"] == source)
        & (table["null"].isna() if null is None else table["null"] == null)
    ]
    assert len(rows) == 1
    return rows.iloc[0]


def test_cosine_similarity_takes_the_mean_off_first(encoding):
    values = encoding.to_numpy()
    centred = values - values.mean(axis=0)
    slow = [[a @ b / np.sqrt((a @ a) * (b @ b)) for b in centred] for a in centred]
    np.testing.assert_allclose(cosine_similarity(values), slow, atol=1e-12)
    np.testing.assert_allclose(cosine_similarity(values + 100), slow, atol=1e-9)


def test_cosine_similarity_of_a_region_without_direction_is_zero_and_said():
    values = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]])
    with pytest.warns(UserWarning, match="1 of 3 regions"):
        similarity = cosine_similarity(values)
    np.testing.assert_array_equal(similarity[2], 0)


@pytest.mark.parametrize("bad", [np.zeros(3), np.array([[1.0, np.nan], [0, 1]])])
def test_cosine_similarity_refuses_what_is_no_encoding(bad):
    with pytest.raises(InputError, match="encoding"):
        cosine_similarity(bad)


def test_procrustes_ignores_rotation_reflection_scale_and_shift(encoding):
    values = encoding.to_numpy()
    turn = Rotation.random(random_state=0).as_matrix() @ np.diag([1, 1, -1])
    moved = 3 * values[:, :3] @ turn + [1, -2, 5]
    assert procrustes_distance(values[:, :3], moved) == pytest.approx(0, abs=1e-12)
    wider = np.hstack([moved, np.zeros((N_REGIONS, 2))])
    assert procrustes_distance(values[:, :3], wider) == pytest.approx(0, abs=1e-12)


def test_procrustes_agrees_with_scipy_and_is_symmetric(rng, encoding):
    values, other = encoding.to_numpy(), rng.normal(size=encoding.shape)
    # scipy scales the second set too: its residual is 1 - s^2 for our 2 - 2 s.
    residual = scipy_procrustes(values, other)[2]
    expected = 2 - 2 * np.sqrt(1 - residual)
    assert procrustes_distance(values, other) == pytest.approx(expected)
    assert procrustes_distance(other, values) == pytest.approx(expected)


def test_procrustes_refuses_other_regions_and_a_constant_encoding(encoding):
    values = encoding.to_numpy()
    with pytest.raises(InputError, match="60 and 59 regions"):
        procrustes_distance(values, values[1:])
    with pytest.raises(InputError, match="second encoding"):
        procrustes_distance(values, np.ones_like(values))


def test_draws_equal_the_statistic_on_permuted_regions(rng, encoding):
    values, other = encoding.to_numpy(), rng.normal(size=encoding.shape)
    orders = label_permutations(N_REGIONS, n_permutations=4)
    distances = procrustes_draws(values, other, orders)
    slow = [procrustes_distance(values, other[order]) for order in [range(N_REGIONS), *orders]]
    np.testing.assert_allclose(distances, slow)
    first, second = cosine_similarity(values), cosine_similarity(other)
    correlations = correlation_draws([first], second, orders)[0]
    slow = [
        matrix_correlation(first, second[np.ix_(order, order)])
        for order in [np.arange(N_REGIONS), *orders]
    ]
    np.testing.assert_allclose(correlations, slow, atol=1e-12)


@pytest.mark.parametrize("gamma", [0.8, 1.0, 2.0])
def test_modularity_is_what_bctpy_returns_for_its_labels(signed, gamma):
    weights = signed - np.diag(np.diag(signed))
    labels, q = community_louvain(weights, gamma=gamma, B="negative_asym", seed=1)
    assert modularity(signed, labels, gamma=gamma) == pytest.approx(q, abs=1e-12)


def test_modularity_without_negative_weights_is_networkx_modularity(rng):
    weights = rng.random((12, 12))
    weights = np.triu(weights, 1) + np.triu(weights, 1).T
    labels = np.array([0] * 5 + [1] * 4 + [2] * 3)
    graph = networkx.from_numpy_array(weights)
    parts = [set(np.flatnonzero(labels == label)) for label in range(3)]
    expected = networkx.community.modularity(graph, parts, resolution=1.3)
    assert modularity(weights, labels, gamma=1.3) == pytest.approx(expected)


def test_modularity_of_equation_five_written_out(signed):
    labels = np.repeat([0, 1], 20)
    positive, negative = np.maximum(signed, 0), np.maximum(-signed, 0)
    np.fill_diagonal(positive, 0)
    total = 0.0
    for i in range(40):
        for j in range(40):
            if labels[i] == labels[j]:
                plus = positive[i, j] - positive[i].sum() * positive[j].sum() / positive.sum()
                minus = negative[i, j] - negative[i].sum() * negative[j].sum() / negative.sum()
                total += plus / positive.sum() - minus / (positive.sum() + negative.sum())
    assert modularity(signed, labels) == pytest.approx(total)


def test_communities_planted_are_found(rng, networks):
    codes = np.unique(networks, return_inverse=True)[1]
    similarity = cosine_similarity(3 * np.eye(4, 12)[codes] + 0.5 * rng.normal(size=(60, 12)))
    found = find_communities(similarity, resolutions=[1.0])
    assert adjusted_rand_score(networks, found.labels[0]) == 1.0
    own = modularity(similarity, found.labels[0])
    assert found.modularity[0] == pytest.approx(own, abs=1e-9)


def test_communities_are_the_same_with_the_same_seed(signed):
    one, two = find_communities(signed, seed=3), find_communities(signed, seed=3)
    np.testing.assert_array_equal(one.labels, two.labels)


@pytest.mark.parametrize("total", [-1e-3, 0.0, 1e-3])
def test_communities_are_found_where_the_weights_cancel(total):
    # bctpy divides its first Q by the signed sum: near 0 it stops after one pass, on this ring
    # with 30 communities and Q 0.69 instead of 11 and 0.82.
    steps = np.abs(np.subtract.outer(np.arange(120), np.arange(120)))
    weights = np.exp(-(np.minimum(steps, 120 - steps) ** 2) / 2)
    others = ~np.eye(120, dtype=bool)
    weights[~others] = 0
    weights[others] -= (weights.sum() - total) / others.sum()
    found = find_communities(weights, resolutions=[1.0])
    assert found.modularity[0] > 0.8
    assert found.counts[0] < 15


def test_communities_refuse_a_region_without_signal(signed):
    signed[3] = signed[:, 3] = np.nan
    with pytest.raises(InputError, match=r"row 3 .* not finite"):
        find_communities(signed)


def test_resolutions_that_break_the_matrix_up_are_left_out(signed):
    found = find_communities(signed, max_communities=6)
    assert found.counts.max() <= 6
    assert len(found.resolutions) == len(found.labels) == len(found.modularity)
    assert len(found.resolutions) < len(find_communities(signed).resolutions)


def test_structure_of_every_relabelling_is_the_slow_mean_over_pairs(encoding, networks):
    similarity = cosine_similarity(encoding.to_numpy())
    names, codes = np.unique(networks, return_inverse=True)
    orders = label_permutations(N_REGIONS, n_permutations=3)
    labels = np.concatenate([codes[None], codes[orders]])
    fast = network_structure(similarity, labels)
    for row, own in enumerate(labels):
        within, between = [], []
        for i in range(N_REGIONS):
            for j in range(i):
                (within if own[i] == own[j] else between).append(similarity[i, j])
        assert fast["within"][row] == pytest.approx(np.mean(within))
        assert fast["between"][row] == pytest.approx(np.mean(between))
        assert fast["q_partition"][row] == pytest.approx(modularity(similarity, own))
        for network in range(len(names)):
            inside = own == network
            block = similarity[np.ix_(inside, inside)]
            own_pairs = block[~np.eye(len(block), dtype=bool)].mean()
            expected = own_pairs - similarity[np.ix_(inside, ~inside)].mean()
            assert fast["network_within_minus_between"][row, network] == pytest.approx(expected)


def test_agreement_of_every_relabelling_is_scikit_learns(encoding, networks):
    found = find_communities(cosine_similarity(encoding.to_numpy()))
    codes = np.unique(networks, return_inverse=True)[1]
    orders = label_permutations(N_REGIONS, n_permutations=3)
    labels = np.concatenate([codes[None], codes[orders]])
    ari, ami = communities_agreement(found, labels)
    for place, communities in enumerate(found.labels):
        for row, own in enumerate(labels):
            assert ari[place, row] == pytest.approx(adjusted_rand_score(own, communities))
            expected = adjusted_mutual_info_score(own, communities)
            assert ami[place, row] == pytest.approx(expected, abs=1e-9)


def test_label_permutations_are_permutations():
    orders = label_permutations(20, n_permutations=50, seed=1)
    assert (np.sort(orders, axis=1) == np.arange(20)).all()
    assert len(np.unique(orders, axis=0)) == 50


def test_spins_are_permutations_that_stay_in_their_hemisphere(coordinates):
    xyz, side = coordinates[["x", "y", "z"]].to_numpy(), coordinates["hemisphere"].to_numpy()
    orders = spin_permutations(xyz, side, n_permutations=21, seed=0)
    assert orders.shape == (21, N_REGIONS)
    assert (np.sort(orders, axis=1) == np.arange(N_REGIONS)).all()
    assert (side[orders] == side).all()
    # Pairs of a rotation and its inverse.
    np.testing.assert_array_equal(orders[1], np.argsort(orders[0]))
    assert (orders[0] != orders[1]).any()
    again = spin_permutations(xyz, side, n_permutations=21, seed=0)
    np.testing.assert_array_equal(orders, again)


def test_spins_keep_neighbours_together(coordinates):
    xyz, side = coordinates[["x", "y", "z"]].to_numpy(), coordinates["hemisphere"].to_numpy()
    left = side == "L"
    sphere = xyz[left] - xyz[left].mean(axis=0)
    sphere /= np.linalg.norm(sphere, axis=1, keepdims=True)
    nearest = np.argsort(-(sphere @ sphere.T), axis=1)[:, 1]

    def apart(orders):
        return np.mean([1 - np.sum(sphere[o] * sphere[o][nearest], axis=1) for o in orders])

    spins = spin_permutations(xyz, side, n_permutations=40)[:, left]
    shuffled = label_permutations(left.sum(), n_permutations=40)
    assert apart(spins) < 0.35 * apart(shuffled)


def test_spins_of_mirrored_hemispheres_are_mirrored(rng):
    half = rng.normal(size=(15, 3)) + np.array([-3, 0, 0])
    xyz = np.concatenate([half, half * [-1, 1, 1]])
    orders = spin_permutations(xyz, np.repeat(["L", "R"], 15), n_permutations=10)
    np.testing.assert_array_equal(orders[:, :15], orders[:, 15:] - 15)


def test_a_null_with_region_coordinates_missing_is_left_out_and_said(coordinates):
    coordinates.loc[2, "y"] = np.nan
    with pytest.warns(UserWarning, match="1 of 60 regions have no coordinates"):
        nulls = null_permutations(NAMES, coordinates=coordinates, n_permutations=5)
    assert list(nulls) == ["label_permutation"]
    with pytest.raises(InputError, match=r"first: L_0"):
        null_permutations(NAMES, coordinates=coordinates.iloc[1:], n_permutations=5)


def test_hemispheres_come_from_x_where_they_are_not_given(coordinates):
    with_names = null_permutations(NAMES, coordinates=coordinates, n_permutations=6)["spin"]
    without = coordinates.drop(columns="hemisphere")
    orders = null_permutations(NAMES, coordinates=without, n_permutations=6)["spin"]
    np.testing.assert_array_equal(with_names, orders)


def test_p_and_z_count_the_null_values():
    draws = np.array([2.0, 1.0, 2.0, 3.0, 0.0])
    (row,) = null_rows({"spin": draws}, statistic="ari", network="all")
    assert row["p"] == pytest.approx((1 + 2) / 5)
    assert row["z"] == pytest.approx((2 - 1.5) / np.std([1, 2, 3, 0], ddof=1))
    (row,) = null_rows({"spin": draws}, statistic="procrustes", network="all")
    assert row["p"] == pytest.approx((1 + 3) / 5)


def test_planted_networks_stand_out_and_every_row_is_complete(encoding, networks, coordinates):
    table = compare_networks(
        encoding,
        partition=networks,
        change=encoding - 3.0,
        functional_connectivity=encoding.T.corr(),
        coordinates=coordinates,
        n_permutations=99,
    )
    assert set(table["source"]) == {"pe", "change", "fc"}
    assert (table["partition"] == "yeo7").all()
    for statistic in ("within_minus_between", "q_partition", "ari", "ami", "ari_matched"):
        for null in ("label_permutation", "spin"):
            row = value_of(table, statistic, null=null)
            # A few rotations out of 99 are so small that no label moves.
            assert row["p"] <= (0.01 if null == "label_permutation" else 0.06)
            assert row["z"] > 2
            assert row["n_permutations"] == 99
    assert value_of(table, "between")["p"] == pytest.approx(0.01)
    assert value_of(table, "within_minus_between", network="Vis")["p"] < 0.05
    similarity = cosine_similarity(encoding.to_numpy())
    q = value_of(table, "q_partition")["value"]
    assert q == pytest.approx(modularity(similarity, networks))
    found = value_of(table, "q_found")
    assert found["value"] >= q - 1e-9
    # Communities dealt out at random have a modularity about zero.
    assert abs(found["null_mean"]) < 0.02
    assert found["z"] > 2
    assert value_of(table, "n_communities_matched", null=None)["value"] == 4
    pd.testing.assert_frame_equal(
        table[table["source"] == "pe"].drop(columns="source").reset_index(drop=True),
        table[table["source"] == "change"].drop(columns="source").reset_index(drop=True),
    )


def test_noise_has_no_networks(rng, networks):
    """The nulls are honest: over many noise encodings p is as often small as it says."""
    small = []
    for seed in range(20):
        noise = pd.DataFrame(rng.normal(size=(N_REGIONS, 12)), index=NAMES)
        table = compare_networks(noise, partition=networks, n_permutations=39, seed=seed)
        small.append([value_of(table, name)["p"] <= 0.1 for name in ("ari", "q_partition")])
    assert np.mean(small) < 0.3


def test_the_null_of_the_best_resolution_takes_the_best_resolution_too(encoding, networks):
    table = compare_networks(encoding, partition=networks, n_permutations=99)
    assert value_of(table, "ari")["null_mean"] > value_of(table, "ari_matched")["null_mean"] + 0.003


def test_same_seed_same_table(encoding, networks, coordinates):
    tables = [
        compare_networks(
            encoding, partition=networks, coordinates=coordinates, n_permutations=20, seed=5
        )
        for _ in range(2)
    ]
    pd.testing.assert_frame_equal(*tables)


def test_regions_are_matched_by_name_not_by_order(encoding, networks):
    straight = compare_networks(encoding, partition=networks, n_permutations=20)
    turned = compare_networks(encoding, partition=networks[::-1], n_permutations=20)
    pd.testing.assert_frame_equal(straight, turned)


def test_regions_without_a_network_are_left_out_and_said(encoding, networks):
    networks.iloc[:5] = np.nan
    with pytest.warns(UserWarning, match="5 of 60 regions have no network in yeo7"):
        table = compare_networks(encoding, partition=networks, n_permutations=20)
    kept = networks.dropna()
    similarity = cosine_similarity(encoding.loc[kept.index].to_numpy())
    assert value_of(table, "q_partition")["value"] == pytest.approx(modularity(similarity, kept))


def test_a_network_of_one_region_has_no_value(encoding, networks):
    networks.iloc[0] = "Lonely"
    table = compare_networks(encoding, partition=networks, n_permutations=20)
    row = value_of(table, "within_minus_between", network="Lonely", null=None)
    assert np.isnan(row["value"])


def test_partition_of_another_atlas_shows_the_first_mismatches(networks):
    with pytest.raises(InputError, match=r"60 of 60 regions .* L_0, L_1, L_2; it has LH_0"):
        match_partition(networks.rename(lambda name: name.replace("_", "H_")), NAMES)


def test_partition_with_repeated_names_or_one_network_is_refused(networks):
    with pytest.raises(InputError, match="'L_0' repeats"):
        match_partition(pd.concat([networks, networks]), NAMES)
    with pytest.raises(InputError, match="found 1 network"):
        match_partition(pd.Series("Vis", index=NAMES), NAMES)


def test_an_encoding_that_did_not_change_has_no_change(encoding, networks):
    with pytest.warns(UserWarning, match="did not change"):
        table = compare_networks(
            encoding, partition=networks, change=encoding * 0, n_permutations=20
        )
    assert set(table["source"]) == {"pe"}


def test_communities_belong_to_their_regions(encoding, networks):
    similarity = pd.DataFrame(cosine_similarity(encoding.to_numpy()), index=NAMES, columns=NAMES)
    nulls = null_permutations(NAMES, n_permutations=10)
    result = compare_source(similarity, source="pe", networks=networks, nulls=nulls)
    assert list(result.communities.index) == NAMES
    assert adjusted_rand_score(result.communities, networks) == pytest.approx(
        value_of(result.table, "ari_matched")["value"]
    )


def test_nothing_here_knows_of_models_or_images():
    folder = Path(neuro_pe.__file__).parent / "comparison"
    forbidden = {"torch", "nilearn", "nibabel", "click", "neuro_pe.model_folder"}
    for file in folder.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not {name for name in names if name in forbidden or "torch" in name}, file


def test_no_warning_on_good_data(encoding, networks, coordinates):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compare_networks(
            encoding,
            partition=networks,
            functional_connectivity=encoding.T.corr(),
            coordinates=coordinates,
            n_permutations=10,
        )


def test_functional_connectivity_of_other_regions_is_refused(encoding, networks):
    fc = encoding.T.corr().iloc[1:, 1:]
    with pytest.raises(InputError, match=r"functional connectivity: 1 regions .*L_0"):
        compare_networks(encoding, partition=networks, functional_connectivity=fc)
