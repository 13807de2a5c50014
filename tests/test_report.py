import re
from dataclasses import replace
from html.parser import HTMLParser

import matplotlib.image
import numpy as np
import pandas as pd
import pytest

from neuro_pe import InputError, compare_networks, plotting
from neuro_pe._report_errors import network_error_rows
from neuro_pe._report_page import draw_figures, render_page
from neuro_pe.comparison import procrustes_distance
from neuro_pe.derivatives import read_table
from neuro_pe.model_folder import find_model_folders, read_model_folder, write_model_folder
from neuro_pe.report import (
    choose_partition,
    compare_fits,
    comparison_text,
    default_folder,
    write_comparison,
)


@pytest.fixture
def write(tmp_path):
    """Compare fits and write everything; return the comparison."""

    def run(paths, *, partition=None, n_permutations=30, **options):
        models = find_model_folders(paths)
        return write_comparison(
            models,
            partition=choose_partition(models, partition),
            output_dir=tmp_path / "out",
            n_permutations=n_permutations,
            **options,
        )

    return run


@pytest.fixture
def compare():
    """Compare fits without drawing and writing."""

    def run(paths, *, n_permutations=30, **options):
        models = find_model_folders(paths)
        return compare_fits(
            models, partition=choose_partition(models), n_permutations=n_permutations, **options
        )

    return run


def page_of(comparison, figures=()):
    return render_page(comparison, figures, n_permutations=30, seed=0)


class Page(HTMLParser):
    """The tags and the text of a page; fails where tags do not close in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.links, self.words = [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.links += [value for name, value in attributes if name in ("src", "href")]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def test_everything_promised_is_on_disk(make_fit, write, tmp_path):
    comparison = write([make_fit(), make_fit(seed=1)])
    out = tmp_path / "out"
    table = read_table(out / "comparison.tsv")
    assert list(table.columns) == [
        "source", "seed", "partition", "network", "statistic", "value", "null", "null_mean",
        "null_sd", "z", "p", "n_permutations", "fit",
    ]  # fmt: skip
    assert len(table) == len(comparison.table)
    assert set(table["source"]) == {"pe", "change", "fc"}
    figures = {file.name for file in (out / "figures").iterdir()}
    fit = "encoding-learn_sigma-0.1_mask-0.9"
    assert figures == {
        "similarity_fc.png",
        *(f"{kind}_{fit}.png" for kind in (
            "similarity_pe", "similarity_change", "against_fc_pe", "against_fc_change",
            "communities_pe", "errors_by_network", "r2_by_region",
        )),
    }  # fmt: skip
    for file in (out / "figures").iterdir():
        assert matplotlib.image.imread(file).std() > 0
    assert not [file for file in out.rglob(".*")]


def test_the_page_needs_nothing_else(make_fit, write, tmp_path):
    write([make_fit(), make_fit(seed=1)])
    text = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert len(page.links) == 8
    assert all(link.startswith("data:image/png;base64,") for link in page.links)
    without_images = re.sub(r"data:image/png;base64,[A-Za-z0-9+/=]+", "", text)
    assert not re.search(r"https?://|@import|url\(|<script", without_images)
    words = " ".join(page.words)
    for expected in ("yeo7", "gaussian", "model minus it", "2 seeds", "labels permuted", "bctpy"):
        assert expected in words
    assert "Human Connectome" not in words


def test_numbers_are_those_of_compare_networks(make_fit, compare):
    comparison = compare([make_fit()], seed=4)
    model = comparison.groups["encoding-learn_sigma-0.1_mask-0.9"][0]
    expected = compare_networks(
        model.positional_encoding,
        partition=choose_partition([model]),
        change=model.positional_encoding_change,
        functional_connectivity=model.functional_connectivity,
        coordinates=model.regions,
        n_permutations=30,
        seed=4,
    )
    keys = ["source", "network", "statistic", "null"]
    table = comparison.table[comparison.table["statistic"] != "correlation_with_fc"]
    columns = [*keys, "value", "z", "p"]
    pd.testing.assert_frame_equal(
        table[columns].sort_values(keys, ignore_index=True),
        expected[columns].sort_values(keys, ignore_index=True),
    )


def test_seeds_are_told_apart_and_connectivity_stands_once(make_fit, compare):
    table = compare([make_fit(), make_fit(seed=1), make_fit(seed=2)]).table
    assert set(table.loc[table["source"] == "pe", "seed"]) == {0, 1, 2, "0-1", "0-2", "1-2"}
    fc = table[table["source"] == "fc"]
    assert fc["seed"].isna().all()
    assert not fc.duplicated(["network", "statistic", "null"]).any()
    pe = table[table["source"] == "pe"]
    assert not pe.duplicated(["seed", "network", "statistic", "null"]).any()


def test_procrustes_between_seeds_stands_beside_its_null(make_fit, compare):
    comparison = compare([make_fit(), make_fit(seed=1)])
    table = comparison.table
    rows = table[(table["statistic"] == "procrustes") & (table["source"] == "change")]
    (row,) = rows.to_dict("records")
    one, two = comparison.groups["encoding-learn_sigma-0.1_mask-0.9"]
    assert row["value"] == pytest.approx(
        procrustes_distance(one.positional_encoding_change, two.positional_encoding_change)
    )
    assert row["seed"] == "0-1"
    assert row["value"] < row["null_mean"]
    assert row["p"] == pytest.approx(1 / 31)


def test_correlation_with_connectivity_is_numpys(make_fit, compare):
    comparison = compare([make_fit()])
    table = comparison.table
    rows = table[(table["statistic"] == "correlation_with_fc") & (table["source"] == "pe")]
    assert set(rows["null"]) == {"label_permutation", "spin"}
    fit = "encoding-learn_sigma-0.1_mask-0.9"
    pairs = np.triu_indices(60, k=1)
    x = comparison.similarities["", "fc"].to_numpy()[pairs]
    y = comparison.similarities[fit, "pe"].to_numpy()[pairs]
    assert rows["value"].iloc[0] == pytest.approx(np.corrcoef(x, y)[0, 1])


def test_different_settings_stand_side_by_side(make_fit, compare):
    comparison = compare([make_fit(), make_fit(sigma=1.0)])
    assert list(comparison.groups) == [
        "encoding-learn_sigma-0.1_mask-0.9",
        "encoding-learn_sigma-1_mask-0.9",
    ]
    text = comparison_text(comparison)
    assert text.count("learned change") == 2
    page = page_of(comparison)
    assert re.search(r'class="differs"><td>sigma</td><td>0.1</td><td>1.0</td>', page)


@pytest.mark.parametrize(
    ("encoding", "sources", "note"),
    [
        ("3d-fixed", {"pe", "fc"}, "its encoding is as it started"),
        ("nope", {"fc"}, "no positional encoding"),
    ],
)
def test_what_a_fit_has_not_is_said_in_one_line(make_fit, compare, encoding, sources, note):
    with pytest.warns(UserWarning, match=note):
        comparison = compare([make_fit(encoding=encoding)])
    assert set(comparison.table["source"]) == sources
    assert len(comparison.notes) == 1
    assert comparison.notes[0] in page_of(comparison)
    assert comparison_text(comparison)


def test_without_test_subjects_the_errors_are_those_of_validation(make_fit, compare):
    comparison = compare([make_fit(n_test=0)])
    assert "validation subjects" in page_of(comparison)
    assert not [figure for figure in draw_figures(comparison) if "errors" in figure.name]


def test_without_coordinates_there_is_no_spin_and_no_brain(make_fit, compare):
    path = make_fit()
    model = read_model_folder(path)
    bare = path.with_name("bare")
    regions = model.regions.drop(columns=["x", "y", "z"])
    write_model_folder(replace(model, path=bare, regions=regions), model.weights())
    comparison = compare([bare])
    assert set(comparison.table["null"].dropna()) == {"label_permutation"}
    assert "no spatial null" in comparison.notes[0]
    names = {figure.name for figure in draw_figures(comparison)}
    assert not [name for name in names if "communities" in name or "by_region" in name]
    assert "labels permuted" in comparison_text(comparison)


def test_demo_data_are_acknowledged(make_fit, compare):
    page = page_of(compare([make_fit(sources=["site-packages/neuro_pe/demo_data"])]))
    assert "Human Connectome Project, WU-Minn Consortium" in page


def test_names_are_escaped_in_the_page(make_fit, compare):
    page = page_of(compare([make_fit(sources=["<script>alert(1)</script>"])]))
    assert "<script>" not in page


def test_a_second_run_replaces_the_first_and_gives_the_same_table(
    make_fit, write, tmp_path, monkeypatch
):
    monkeypatch.setattr("neuro_pe.report.draw_figures", lambda _comparison: [])
    paths = [make_fit()]
    write(paths)
    first = (tmp_path / "out" / "comparison.tsv").read_bytes()
    write(paths)
    assert (tmp_path / "out" / "comparison.tsv").read_bytes() == first
    write(paths, n_permutations=20)
    assert (tmp_path / "out" / "comparison.tsv").read_bytes() != first


def test_an_earlier_report_stays_when_the_work_fails(make_fit, write, tmp_path, monkeypatch):
    monkeypatch.setattr("neuro_pe.report.draw_figures", lambda _comparison: [])
    paths = [make_fit()]
    write(paths)
    before = {file: file.read_bytes() for file in (tmp_path / "out").rglob("*") if file.is_file()}

    def fail(*_args, **_options):
        msg = "no space"
        raise OSError(msg)

    monkeypatch.setattr("neuro_pe.report.render_page", fail)
    with pytest.raises(OSError, match="no space"):
        write(paths, n_permutations=20)
    after = {file: file.read_bytes() for file in (tmp_path / "out").rglob("*") if file.is_file()}
    assert after == before


def test_fits_that_cannot_stand_side_by_side_are_refused(make_fit):
    def refused(match, *paths):
        models = find_model_folders(paths)
        with pytest.raises(InputError, match=match):
            compare_fits(models, partition=choose_partition(models), n_permutations=10)

    first = make_fit()
    refused("30 regions that are not the 60", first, make_fit(folder="a", seed=1, n_regions=30))
    refused("other data", first, make_fit(folder="b", seed=1, fingerprint="b2"))
    refused("split in another way", first, make_fit(folder="c", seed=1, n_test=3))
    refused("window 10 where", first, make_fit(folder="d", seed=1, window=10))
    refused("both are encoding-learn", first, make_fit(folder="e"))


def test_the_partition_is_the_first_of_the_atlas_or_the_one_named(make_fit):
    models = find_model_folders([make_fit()])
    assert choose_partition(models).name == "yeo7"
    assert choose_partition(models, "yeo17").name == "yeo17"
    with pytest.raises(InputError, match=r"gordon.*yeo7, yeo17"):
        choose_partition(models, "gordon")
    with pytest.raises(FileNotFoundError):
        choose_partition(models, "missing.tsv")


def test_a_file_may_spell_the_atlas_names_another_way(make_fit, tmp_path):
    models = find_model_folders([make_fit()])
    labels = choose_partition(models)
    lines = [f"{name}_ROI\t{network}" for name, network in labels.dropna().items()]
    lines += [f"{name}_ROI\tn/a" for name in labels.index[labels.isna()]]
    file = tmp_path / "mine.tsv"
    file.write_text("name\tnetwork\n" + "\n".join(reversed(lines)) + "\n")
    mine = choose_partition(models, str(file))
    pd.testing.assert_series_equal(
        mine.sort_index(), labels.sort_index(), check_names=False, check_dtype=False
    )
    assert mine.name == "mine"


def test_a_file_of_another_atlas_shows_the_first_mismatches(make_fit, write, tmp_path):
    file = tmp_path / "other.tsv"
    file.write_text("name\tnetwork\n" + "".join(f"P{i}\tN{i % 3}\n" for i in range(60)))
    with pytest.raises(InputError, match=r"other: 60 of 60 .*first: L_V1.*it has P0, P1, P2"):
        write([make_fit()], partition=str(file))


def test_regions_of_no_known_atlas_need_a_file(make_fit):
    models = find_model_folders([make_fit(atlas=None)])
    with pytest.raises(InputError, match="give --partition a file"):
        choose_partition(models, "yeo7")


def test_the_report_goes_where_the_models_are(make_fit):
    one, two = make_fit(), make_fit(seed=1)
    assert default_folder(find_model_folders([one, two])) == one.parent
    other = make_fit(folder="elsewhere", seed=1)
    with pytest.raises(InputError, match="--output-dir"):
        default_folder(find_model_folders([one, other]))


def test_progress_ends_with_all_steps(make_fit, compare):
    steps = []
    compare([make_fit()], progress=lambda done, total: steps.append((done, total)))
    assert steps == [(done, 6) for done in range(1, 7)]


def test_what_others_wrote_is_not_replaced(make_fit, tmp_path):
    models = find_model_folders([make_fit()])
    partition = choose_partition(models)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "comparison.tsv").write_text("my own numbers\n")
    with pytest.raises(InputError, match="not the table of an earlier comparison"):
        write_comparison(models, partition=partition, output_dir=tmp_path / "mine")
    assert (tmp_path / "mine" / "comparison.tsv").read_text() == "my own numbers\n"
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "dataset_description.json").write_text('{"Name": "ds"}')
    with pytest.raises(InputError, match="it is the data set of someone else"):
        write_comparison(models, partition=partition, output_dir=tmp_path / "raw")
    assert len(list((tmp_path / "raw").iterdir())) == 1


def test_r2_by_network_stands_in_the_page(make_fit, compare):
    comparison = compare([make_fit(), make_fit(seed=1)])
    (models,) = comparison.groups.values()
    known = {"Vis": 0.5, "SomMot": 0.25, "Default": 0.125}
    for model in models:
        table = model.region_errors
        values = table["region"].map(comparison.networks).map(known)
        is_model = table["predictor"] == "model"
        table.loc[is_model, "r2"] = values[is_model] + model.settings.seed / 50
    rows = network_error_rows(comparison, next(iter(comparison.groups)))
    assert [row["network"] for row in rows] == ["Vis", "SomMot", "Default"]
    assert [row["r2"]["model"] for row in rows] == pytest.approx([0.51, 0.26, 0.135])
    assert list(rows[0]["r2"]) == ["model", "gaussian", "zero"]
    assert rows[0]["n_regions"] == (comparison.networks == "Vis").sum()
    words = page_of(comparison)
    assert "R² by network" in words
    assert "0.510" in words


def test_the_brain_shows_r2(make_fit, compare, monkeypatch):
    drawn = []
    plot = plotting.plot_region_errors
    monkeypatch.setattr(
        plotting,
        "plot_region_errors",
        lambda places, values, **words: drawn.append(values) or plot(places, values, **words),
    )
    comparison = compare([make_fit()])
    draw_figures(comparison)
    ((model,),) = comparison.groups.values()
    table = model.region_errors[model.region_errors["predictor"] == "model"]
    assert drawn[0].to_dict() == pytest.approx(table.groupby("region")["r2"].mean().to_dict())
