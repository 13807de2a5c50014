import json
import os
import shutil

import numpy as np
import pandas as pd
import pytest

from neuro_pe import InputError, atlases, load_bids

SUB = "sub-{subject}/func/sub-{subject}_task-rest"


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("sub-01/func/sub-01_task-rest_space-MNI152NLin2009cAsym_atlas-Glasser_timeseries", ".tsv"),
        ("sub-01/func/sub-01_task-rest_run-01_space-fsLR_seg-Glasser_stat-mean_timeseries", ".tsv"),
        (
            "sub-01/func/sub-01_task-rest_run-01_space-fsLR_seg-Glasser_den-91k_stat-mean_timeseries",
            ".ptseries.nii",
        ),
        (
            "sub-01/ses-1/func/sub-01_ses-1_task-rest_space-fsLR_atlas-Glasser_stat-mean_timeseries",
            ".tsv",
        ),
        ("sub-01/func/sub-01_task-rest_run-01_seg-Glasser_desc-denoiseSimple_timeseries", ".tsv"),
        (
            "sub-01/ses-1/func/sub-01_ses-1_task-rest_bold_atlas-HCPMMP_desc-filtered_timeseries",
            ".ptseries.nii",
        ),
        ("sub-01/func/task-rest/sub-01_task-rest_feature-a_atlas-Glasser_timeseries", ".tsv"),
        ("sub-01/func/sub-01_task-rest_timeseries", ".tsv"),
        ("sub-01/sub-01_cifti", ".ptseries.nii"),
    ],
    ids=lambda value: value.rsplit("/", maxsplit=1)[-1],
)
def test_names_that_pipelines_write(load_quietly, tmp_path, write_series, glasser, name, form):
    values = write_series(tmp_path / f"{name}{form}", tr=0.72)
    data = load_quietly(tmp_path)
    assert data.atlas == "Glasser2016_360"
    assert data.region_names == glasser
    assert data.tr == 0.72
    assert (data[0].subject, data[0].values.dtype) == ("01", np.float32)
    np.testing.assert_allclose(data[0].values, values, rtol=1e-6)


def test_tables_that_are_no_region_series_are_left_alone(
    load_quietly, make_derivative, write_series
):
    folder = make_derivative(["01"])
    func = folder / "sub-01" / "func"
    write_series(func / "sub-01_task-rest_desc-confounds_timeseries.tsv", names=["csf", "dvars"])
    for ending in (
        "task-rest_motion.tsv",
        "task-rest_outliers.tsv",
        "task-rest_run-1_atlas-Glasser_stat-coverage_bold.tsv",
        "task-rest_run-1_atlas-Glasser_stat-pearsoncorrelation_relmat.tsv",
        "task-rest_run-1_atlas-Glasser_stat-alff_bold.tsv",
        "task-rest_run-1_atlas-Glasser_stat-coverage_timeseries.tsv",
    ):
        (func / f"sub-01_{ending}").write_text("x\n1\n")
    for hidden in (".git", "sourcedata", "work"):
        shutil.copytree(func, folder / hidden / "sub-02" / "func")
    assert len(load_quietly(folder)) == 1


def test_columns_are_matched_by_name_whatever_their_order(
    load_quietly, make_derivative, write_series, glasser
):
    folder = make_derivative(["01"])
    shuffled = glasser[::-1]
    path = folder / (SUB + "_run-1_atlas-Glasser_stat-mean_timeseries.tsv").format(subject="02")
    values = write_series(path, names=[f"{name}_ROI" for name in shuffled], tr=0.72)
    data = load_quietly(folder)
    assert data[1].regions == tuple(glasser)
    np.testing.assert_allclose(data[1].values, values[:, ::-1], rtol=1e-6)


def test_seventeen_network_order_with_subcortex(tmp_path, write_series):
    atlas = atlases.load("Schaefer100")
    table = atlas.regions
    names = [*table["name"], "THALAMUS_LEFT", "THALAMUS_RIGHT"]
    write_series(tmp_path / "sub-01_task-rest_atlas-Schaefer100_timeseries.tsv", names=names, tr=2)
    with pytest.warns(UserWarning, match=r"2 columns are no regions of Schaefer2018_100.*THALAMUS"):
        data = load_bids(tmp_path)
    assert data.region_names == table["name"].tolist()
    assert data.dropped["name"].tolist() == ["THALAMUS_LEFT", "THALAMUS_RIGHT"]
    assert set(data.dropped["reason"]) == {"no region of Schaefer2018_100"}


def test_regions_that_are_not_in_the_data_are_listed(tmp_path, write_series, glasser):
    names = ["GlobSig", *glasser[:100], *glasser[101:]]
    write_series(tmp_path / "sub-01_task-rest_atlas-Glasser_timeseries.tsv", names=names, tr=2)
    with pytest.warns(UserWarning, match="are left out") as caught:
        data = load_bids(tmp_path)
    assert len(caught) == 2
    assert data.region_names == glasser[:100] + glasser[101:]
    reasons = data.dropped.set_index("name")["reason"].to_dict()
    assert reasons == {"GlobSig": "no region of Glasser2016_360", glasser[100]: "not in the data"}
    assert len(data.regions) == 359


def test_an_unknown_atlas_keeps_the_names_of_the_files(tmp_path, write_series):
    for subject, names in (("01", ["b", "a", "c"]), ("02", ["a", "b", "c"])):
        path = tmp_path / f"sub-{subject}_task-rest_atlas-Mine_timeseries.tsv"
        values = write_series(path, names=names, tr=2)
    with pytest.warns(UserWarning, match="atlas 'Mine' is not known"):
        data = load_bids(tmp_path)
    assert data.atlas is None
    assert data.region_names == ["b", "a", "c"]
    assert list(data.regions.columns) == ["name"]
    np.testing.assert_allclose(data[1].values, values[:, [1, 0, 2]], rtol=1e-6)


def test_a_run_as_table_and_as_cifti_counts_once(load_quietly, make_derivative, write_series):
    folder = make_derivative(["01"])
    stem = "sub-01_task-rest_run-01_space-fsLR_atlas-Glasser_den-91k_stat-mean_timeseries"
    write_series(folder / "sub-01" / "func" / f"{stem}.ptseries.nii", tr=0.72)
    data = load_quietly(folder)
    assert [run.source for run in data] == [
        str(folder / "sub-01" / "func" / f"{stem}.ptseries.nii")
    ]


def test_the_table_is_read_where_the_cifti_file_is_not_downloaded(load_quietly, make_derivative):
    folder = make_derivative(["01"])
    table = next(folder.rglob("*.tsv"))
    table.with_name(table.name.replace(".tsv", ".ptseries.nii")).symlink_to("/nowhere/annex")
    assert load_quietly(folder)[0].source == str(table)


@pytest.mark.parametrize("entities", ["run", "dir"])
def test_a_concatenation_beside_its_runs_is_left_out(tmp_path, write_series, entities):
    stem = str(tmp_path / SUB.format(subject="01"))
    rest = "_space-fsLR_atlas-Glasser_stat-mean_timeseries.tsv"
    parts = [f"_{entities}-{label}" for label in ("1", "2")]
    for part in parts:
        write_series(f"{stem}{part}{rest}", tr=0.72)
    write_series(f"{stem}{rest}", tr=0.72)
    with pytest.warns(UserWarning, match="1 files without run-"):
        data = load_bids(tmp_path)
    assert [run.source for run in data] == [f"{stem}{part}{rest}" for part in parts]


def test_a_single_file_without_run_is_a_run(load_quietly, make_derivative):
    folder = make_derivative(["01"], name=SUB + "_atlas-Glasser")
    assert load_quietly(folder)[0].run is None


@pytest.mark.parametrize("forms", [(".tsv", ".tsv"), (".tsv", ".ptseries.nii")])
def test_denoising_variants_ask_for_desc(load_quietly, tmp_path, write_series, forms):
    for desc, form in zip(("denoiseSimple", "denoiseCompcor"), forms, strict=True):
        stem = f"{SUB}_seg-Glasser_desc-{desc}".format(subject="01")
        write_series(tmp_path / f"{stem}_timeseries{form}", tr=0.72)
    with pytest.raises(InputError, match=r"found desc denoiseCompcor, denoiseSimple.*--desc den"):
        load_bids(tmp_path)
    assert "desc-denoiseSimple" in load_quietly(tmp_path, desc="denoiseSimple")[0].source


def test_other_variants_of_a_run_are_refused_by_name(tmp_path, write_series):
    for resolution in ("2", "native"):
        stem = f"{SUB}_res-{resolution}_atlas-Glasser".format(subject="01")
        write_series(tmp_path / f"{stem}_timeseries.tsv", tr=2)
    with pytest.raises(InputError, match=r"1 runs are there more than once.*res-2.*res-native"):
        load_bids(tmp_path)


@pytest.mark.parametrize(
    ("variants", "message", "options", "taken"),
    [
        (
            ["atlas-Glasser", "atlas-4S156Parcels", "atlas-Tian"],
            r"found 3 atlases \(4S156Parcels, Glasser, Tian\).* --atlas 4S156Parcels$",
            {"atlas": "HCP-MMP"},
            "atlas-Glasser",
        ),
        (
            ["space-fsLR_atlas-Glasser", "space-MNI152NLin6Asym_atlas-Glasser"],
            r"found 2 spaces \(MNI152NLin6Asym, fsLR\).* --atlas Glasser --space MNI152NLin6Asym$",
            {"space": "fsLR"},
            "space-fsLR",
        ),
    ],
)
def test_variants_side_by_side_ask_for_a_choice(
    load_quietly, tmp_path, write_series, variants, message, options, taken
):
    for variant in variants:
        write_series(tmp_path / f"sub-01_task-rest_{variant}_timeseries.tsv", tr=2)
    with pytest.raises(InputError, match=message):
        load_bids(tmp_path)
    assert taken in load_quietly(tmp_path, **options)[0].source


def test_an_atlas_label_as_it_stands_comes_before_its_meaning(load_quietly, tmp_path, write_series):
    names = atlases.load("Schaefer100").regions["name"]
    for label in ("Schaefer2018100Parcels7Networks", "Schaefer100"):
        path = tmp_path / f"sub-01_task-rest_atlas-{label}_timeseries.tsv"
        write_series(path, names=names, tr=2)
    data = load_quietly(tmp_path, atlas="schaefer100")
    assert "atlas-Schaefer100_" in data[0].source
    with pytest.raises(InputError, match="can mean each of Schaefer100, Schaefer2018100Parcels7"):
        load_bids(tmp_path, atlas="Schaefer2018_100")


def test_filters(load_quietly, tmp_path, write_series):
    for subject in ("01", "02"):
        for task, run in (("rest", "01"), ("rest", "02"), ("nback", "01")):
            stem = f"sub-{subject}_ses-a_task-{task}_run-{run}_atlas-Glasser_timeseries"
            write_series(tmp_path / f"{stem}.tsv", tr=2)
    data = load_quietly(tmp_path, task="rest", run=["1"], session="ses-a", subjects="sub-02")
    assert [(run.subject, run.task, run.run, run.session) for run in data] == [
        ("02", "rest", "1", "a")
    ]
    assert len(load_quietly(tmp_path, task=["rest", "task-nback"])) == 6
    with pytest.raises(InputError, match="task motor not found; found task nback, rest"):
        load_bids(tmp_path, task=["rest", "motor"])
    with pytest.raises(InputError, match="subjects 99 not found; found subjects 01, 02"):
        load_bids(tmp_path, subjects=["01", "99"])
    with pytest.raises(
        InputError, match=r"task nback, run 2 together; found atlases Glasser; task"
    ):
        load_bids(tmp_path, task="nback", run="2")
    with pytest.raises(InputError, match="no region time series of atlas 'Gordon'; found atlases"):
        load_bids(tmp_path, atlas="Gordon")


def test_the_same_values_in_two_subjects_are_refused(make_derivative):
    folder = make_derivative(["01", "02"])
    one, two = sorted(folder.rglob("*.tsv"))
    shutil.copyfile(one, two)
    with pytest.raises(InputError, match="have the same values, as subjects 01 and 02"):
        load_bids(folder)


def test_the_same_values_twice_in_a_subject_are_warned_about(make_derivative):
    folder = make_derivative(["01"])
    path = next(folder.rglob("*.tsv"))
    shorter = path.read_text().splitlines()[:-3]
    path.with_name(path.name.replace("run-1", "run-2")).write_text("\n".join(shorter) + "\n")
    (folder / "task-rest_bold.json").write_text('{"RepetitionTime": 0.72}')
    with pytest.warns(UserWarning, match="have the same values; subject 01 counts twice"):
        data = load_bids(folder)
    assert len(data) == 2


@pytest.mark.parametrize(
    ("sidecars", "expected"),
    [
        ({"sub-01/func/sub-01_task-rest_run-1_timeseries.json": {"RepetitionTime": 2}}, 2.0),
        ({"task-rest_timeseries.json": {"SamplingFrequency": 0.5}}, 2.0),
        ({"task-rest_bold.json": {"RepetitionTime": 2}}, 2.0),
        ({"task-nback_bold.json": {"RepetitionTime": 2}}, None),
        ({"sub-02/func/sub-02_task-rest_timeseries.json": {"RepetitionTime": 2}}, None),
        (
            {
                "task-rest_timeseries.json": {"RepetitionTime": 3},
                "sub-01/func/sub-01_task-rest_timeseries.json": {"RepetitionTime": 2},
                "sub-01/func/sub-01_timeseries.json": {"RepetitionTime": 4},
            },
            2.0,
        ),
        ({"task-rest_timeseries.json": {"RepetitionTime": "n/a", "SamplingFrequency": 0.5}}, 2.0),
    ],
)
def test_sidecars_are_inherited(load_quietly, make_derivative, sidecars, expected):
    folder = make_derivative(["01"], tr=None)
    for name, content in sidecars.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content))
    if expected is None:
        with pytest.warns(UserWarning, match="no repetition time known"):
            assert load_bids(folder).tr is None
    else:
        assert load_quietly(folder).tr == expected


def test_the_sidecar_wins_over_the_header(make_derivative):
    folder = make_derivative(["01", "02"], form=".ptseries.nii", header_tr=1, tr=2)
    with pytest.warns(UserWarning, match=r"2 s in the JSON sidecar, 1 s in the file.*\(2 files\)"):
        assert load_bids(folder).tr == 2


def test_the_header_counts_where_there_is_no_sidecar(load_quietly, make_derivative):
    folder = make_derivative(["01"], form=".ptseries.nii", header_tr=0.8, tr=None)
    assert load_quietly(folder).tr == pytest.approx(0.8)


def test_milliseconds_are_understood(make_derivative):
    with pytest.warns(UserWarning, match="repetition time 2000 is taken as milliseconds"):
        assert load_bids(make_derivative(["01"], tr=2000)).tr == 2


def test_a_damaged_sidecar_is_named(make_derivative):
    folder = make_derivative(["01"])
    next(folder.rglob("*.json")).write_text('{"RepetitionTime": ')
    with pytest.raises(InputError, match=r"timeseries\.json: cannot be read as JSON"):
        load_bids(folder)


def test_repetition_times_that_differ_are_refused(make_derivative):
    make_derivative(["01"], tr=2)
    with pytest.raises(InputError, match=r"repetition time 0\.72 s where .* has 2 s"):
        load_bids(make_derivative(["02"], tr=0.72))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "the folder is empty"),
        (["sub-01/func/sub-01_task-rest_bold.nii.gz"], "looks like raw BIDS.*run fMRIPrep and XCP"),
        (
            [
                "sub-01/func/sub-01_task-rest_bold.nii.gz",
                "derivatives/fmriprep/sub-01/func/sub-01_task-rest_desc-preproc_bold.nii.gz",
                "sub-01/func/sub-01_task-rest_desc-confounds_timeseries.tsv",
            ],
            "preprocessed images as fMRIPrep writes them.*parcellate them",
        ),
        (["100307/rfMRI_REST1_LR.ptseries.nii"], "without BIDS names.*REST1_LR"),
        (["notes.txt"], "no region time series found"),
    ],
)
def test_folders_without_region_series(tmp_path, files, message):
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    with pytest.raises(InputError, match=message):
        load_bids(tmp_path)


def test_a_folder_that_is_not_there_or_is_a_file(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        load_bids(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="this is a file"):
        load_bids(tmp_path / "file")


def test_a_nested_derivative_is_found_when_it_is_the_only_one(
    load_quietly, make_derivative, tmp_path
):
    raw = tmp_path / "raw"
    folder = make_derivative(["01"])
    (raw / "derivatives").mkdir(parents=True)
    folder.rename(raw / "derivatives" / "xcp_d")
    (raw / "participants.tsv").write_text("participant_id\tfamily\nsub-01\tn/a\nsub-02\tb\n")
    assert load_quietly(raw).participants.loc["02", "family"] == "b"
    data = load_quietly(raw / "derivatives" / "xcp_d")
    assert data.participants.index.tolist() == ["01", "02"]
    assert pd.isna(data.participants.loc["01", "family"])
    shutil.copytree(raw / "derivatives" / "xcp_d", raw / "derivatives" / "other")
    with pytest.raises(InputError, match=r"2 derivative folders \(.*other, .*xcp_d\)"):
        load_bids(raw)


def test_participants_that_repeat(make_derivative):
    folder = make_derivative(["01"])
    (folder / "participants.tsv").write_text("participant_id\tage\nsub-01\t20\nsub-01\t21\n")
    with pytest.warns(UserWarning, match="subject 01 has several rows"):
        assert load_bids(folder).participants["age"].tolist() == [20]


def test_files_that_are_not_downloaded(make_derivative):
    folder = make_derivative(["01", "02"])
    for path in folder.rglob("*.tsv"):
        path.unlink()
        path.symlink_to("../../.git/annex/objects/MD5E-s1")
    with pytest.raises(InputError, match=r"not downloaded, as 2 of 2 files here.*datalad get"):
        load_bids(folder)


def test_a_folder_that_cannot_be_read_is_left_out(make_derivative, monkeypatch):
    folder = make_derivative(["01", "02"])
    scandir = os.scandir

    # Root may read everything, so the refusal is played.
    def refuse(path):
        if "sub-02" in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.warns(UserWarning, match=r"sub-02: left out.*Permission denied"):
        assert load_bids(folder).subjects == ["01"]
    with pytest.raises(InputError, match="cannot be read"):
        load_bids(folder / "sub-02")


def test_a_linked_folder_that_leads_back_is_read_once(load_quietly, make_derivative):
    folder = make_derivative(["01"])
    (folder / "sub-01" / "again").symlink_to(folder)
    assert len(load_quietly(folder)) == 1


def test_gzipped_tables_are_named(make_derivative):
    folder = make_derivative()
    path = next(folder.rglob("*sub-03*.tsv"))
    path.rename(f"{path}.gz")
    with pytest.warns(UserWarning, match=r"sub-03.*\.tsv\.gz: gzipped tables are not read"):
        assert load_bids(folder).subjects == ["01", "02"]
    for path in list(folder.rglob("*.tsv")):
        path.rename(f"{path}.gz")
    with pytest.raises(InputError, match="gzipped tables are not read; unpack them"):
        load_bids(folder)


def test_tasks_that_are_taken_together_are_named(make_derivative, load_quietly):
    make_derivative(name="sub-{subject}/func/sub-{subject}_task-nback_atlas-Glasser")
    folder = make_derivative(name="sub-{subject}/func/sub-{subject}_task-rest_atlas-Glasser")
    with pytest.warns(UserWarning, match=r"2 tasks are taken together \(nback, rest\)"):
        assert len(load_bids(folder)) == 6
    assert len(load_quietly(folder, task=["rest", "nback"])) == 6
