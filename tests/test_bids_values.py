"""What stands in the files: names of columns, damage, missing values."""

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from neuro_pe import InputError, load_bids
from neuro_pe.bids import demo_dir


@pytest.mark.parametrize("first", [0, 1, None], ids=["from 0", "from 1", "no header"])
def test_columns_without_names_need_region_names(load_quietly, tmp_path, rng, glasser, first):
    path = tmp_path / "sub-01_task-rest_atlas-Glasser_timeseries.tsv"
    values = rng.normal(size=(30, 360))
    header = False if first is None else [str(first + number) for number in range(360)]
    pd.DataFrame(values).to_csv(path, sep="\t", index=False, header=header)
    (tmp_path / "task-rest_timeseries.json").write_text('{"RepetitionTime": 2}')
    with pytest.raises(InputError, match=r"360 columns have no names.*--region-names"):
        load_bids(tmp_path)
    names = tmp_path / "names.txt"
    names.write_text("\n".join(glasser[::-1]) + "\n")
    table = tmp_path / "names.tsv"
    pd.DataFrame({"index": range(360), "name": glasser[::-1]}).to_csv(table, sep="\t", index=False)
    for given in (names, str(table), glasser[::-1]):
        data = load_quietly(tmp_path, region_names=given)
        assert data.region_names == glasser
        np.testing.assert_allclose(data[0].values, values[:, ::-1], rtol=1e-6)
    with pytest.raises(InputError, match="360 columns but 359 names"):
        load_bids(tmp_path, region_names=glasser[1:])


def test_region_names_must_not_contradict_the_file(load_quietly, make_derivative, glasser):
    folder = make_derivative(["01"])
    assert load_quietly(folder, region_names=glasser).region_names == glasser
    with pytest.raises(InputError, match=r"column 1 is named 'L_V1' in the file and 'R_.*'"):
        load_bids(folder, region_names=glasser[::-1])


def test_region_names_file_without_name_column(make_derivative, tmp_path):
    (tmp_path / "regions.tsv").write_text("id\tlabel\n1\tL_V1\n")
    with pytest.raises(InputError, match=r"regions\.tsv: 2 columns \(id, label, \.\.\.\)"):
        load_bids(make_derivative(["01"]), region_names=tmp_path / "regions.tsv")


def test_the_row_index_of_pandas_is_no_region(load_quietly, tmp_path, rng, glasser):
    path = tmp_path / "sub-01_task-rest_atlas-Glasser_timeseries.tsv"
    pd.DataFrame(rng.normal(size=(30, 360)), columns=glasser).to_csv(path, sep="\t")
    (tmp_path / "task-rest_timeseries.json").write_text('{"RepetitionTime": 2}')
    assert load_quietly(tmp_path).region_names == glasser


def test_under_95_percent_of_known_names_is_refused(tmp_path, write_series, glasser):
    names = [f"zone_{number}" for number in range(30)] + glasser[30:]
    write_series(tmp_path / "sub-01_task-rest_atlas-Glasser_timeseries.tsv", names=names, tr=2)
    with pytest.raises(InputError, match=r"330 of 360 column names .*'zone_0', 'zone_1', 'zone_2'"):
        load_bids(tmp_path)


def test_another_number_of_columns_names_both(make_derivative, glasser):
    make_derivative(["01"])
    with pytest.raises(InputError, match=r"sub-02.*: 359 columns where .*sub-01.* has 360"):
        load_bids(make_derivative(["02"], names=glasser[1:]))


def test_repeated_column_names_are_refused(make_derivative, glasser):
    folder = make_derivative(["01"], names=[*glasser[:-1], "L_V1"])
    with pytest.raises(InputError, match="2 columns are named 'L_V1'"):
        load_bids(folder)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda lines: [], "the file is empty"),
        (lambda lines: ["", ""], "the file is empty"),
        (lambda lines: lines[:1], "column names but no values"),
        (
            lambda lines: [*lines[:4], lines[4].replace("\t", "\tbad\t", 1).rsplit("\t", 1)[0]],
            r"line 5, column 'L_MST': found 'bad'; expected a number or n/a",
        ),
        (
            lambda lines: [*lines[:4], lines[4].rsplit("\t", 1)[0], *lines[5:]],
            "line 5 has 359 cells where line 1 has 360",
        ),
        (lambda lines: [*lines[:4], lines[4] + "\t1.0"], "line 5 has 361 cells"),
        (lambda lines: [*lines[:4], "", *lines[4:]], "line 5 has 1 cells"),
        (lambda lines: [line.replace("\t", ",") for line in lines], "line 1 has no tab"),
        (lambda lines: ["/annex/objects/MD5E-s1--0.tsv"], "not downloaded; .*datalad get"),
        (lambda lines: [lines[0].replace("L_MST", ""), *lines[1:]], "column 2 has no name"),
    ],
)
def test_damaged_tables_say_where(make_derivative, damage, message):
    folder = make_derivative(["01"])
    path = next(folder.rglob("*.tsv"))
    lines = damage(path.read_text().splitlines())
    path.write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(InputError, match=rf"{path.name}: {message}") as caught:
        load_bids(folder)
    assert "\n" not in str(caught.value)


def test_a_table_that_is_no_text(make_derivative):
    folder = make_derivative(["01"])
    next(folder.rglob("*.tsv")).write_bytes(b"\x1f\x8b\x08\x00\xff\xfe")
    with pytest.raises(InputError, match="no text file in UTF-8"):
        load_bids(folder)


def test_windows_line_ends_and_quotes(load_quietly, make_derivative, glasser):
    folder = make_derivative(["01"])
    path = next(folder.rglob("*.tsv"))
    header, *rows = path.read_text().splitlines()
    header = "\t".join(f'"{name}"' for name in header.split("\t"))
    path.write_bytes(("\ufeff" + "\r\n".join([header, *rows]) + "\r\n").encode())
    assert load_quietly(folder).region_names == glasser


def test_missing_values_take_the_region_from_everybody(make_derivative):
    folder = make_derivative(["01", "02"])
    path = min(folder.rglob("*.tsv"))
    table = pd.read_csv(path, sep="\t")
    table["L_V6"] = np.nan
    table.loc[3, "L_V2"] = np.nan
    table["L_V3"] = 5.0
    table.to_csv(path, sep="\t", index=False, na_rep="n/a")
    with pytest.warns(UserWarning, match="3 of 360 regions left out for everybody"):
        data = load_bids(folder)
    reasons = data.dropped.set_index("name")["reason"]
    assert reasons["L_V6"].startswith("not finite in ")
    assert reasons["L_V2"].startswith("not finite at 1 of 30 volumes")
    assert reasons["L_V3"].startswith("constant")
    assert {run.n_regions for run in data} == {357}


@pytest.mark.parametrize("share", [0, 0.00005, 0.01, 0.02, 0.3, 0.9, 0.99999])
def test_truncated_cifti_is_named(tmp_path, share):
    source = next(demo_dir().rglob("*.ptseries.nii"))
    path = tmp_path / source.name
    content = source.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(InputError, match=rf"{path.name}: (the file is empty|damaged)") as caught:
        load_bids(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("place", [0, 4, 12, 16, 40, 168, 545, 548, 600, 700, 5000])
def test_cifti_with_wrong_bytes_never_ends_in_a_traceback(tmp_path, place):
    source = next(demo_dir().rglob("*.ptseries.nii"))
    content = bytearray(source.read_bytes())
    content[place : place + 8] = b"\xff<\x00\xff\xff>\x00\xff"
    (tmp_path / source.name).write_bytes(content)
    with pytest.raises(InputError):
        load_bids(tmp_path)


def test_other_images_named_ptseries(tmp_path):
    path = tmp_path / "sub-01_task-rest_atlas-Glasser_timeseries.ptseries.nii"
    brain = nib.cifti2.BrainModelAxis.from_mask(np.ones((2, 2, 1)), affine=np.eye(4))
    series = nib.cifti2.SeriesAxis(0, 0.72, 30)
    nib.Cifti2Image(np.zeros((30, 4), dtype=np.float32), (series, brain)).to_filename(path)
    with pytest.raises(InputError, match=r"found Series x BrainModel; .*parcellate it first"):
        load_bids(tmp_path)
    nib.Nifti1Image(np.zeros((2, 2, 2)), np.eye(4)).to_filename(path)
    with pytest.raises(InputError, match="found no CIFTI-2"):
        load_bids(tmp_path)
