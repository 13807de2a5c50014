"""Shared fixtures: a seeded generator, and tiny derivative folders as pipelines write them."""

import json
import warnings
from dataclasses import fields
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
import torch

from neuro_pe import Cohort, FitSettings, RegionTimeSeries, atlases, load_bids, train_models
from neuro_pe.cli import main
from neuro_pe.model_folder import ModelFolder, write_model_folder
from neuro_pe.settings import option_name

XCP_D = "sub-{subject}/func/sub-{subject}_task-rest_run-1_space-fsLR_atlas-Glasser_stat-mean"


@pytest.fixture
def rng():
    return np.random.default_rng(20240717)


@pytest.fixture(scope="session")
def glasser():
    """The 360 region names in atlas order."""
    return atlases.load("Glasser").regions["name"].tolist()


@pytest.fixture
def write_series(rng, glasser):
    """Write one file of region time series, `.tsv` or `.ptseries.nii` by its name."""

    def write(path, *, values=None, names=None, tr=None, header_tr=0.72, n_times=30):
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        names = glasser if names is None else list(names)
        if values is None:
            values = rng.normal(size=(n_times, len(names))).astype(np.float32)
        if path.name.endswith(".ptseries.nii"):
            _parcel_series(values, names, header_tr).to_filename(path)
        else:
            table = pd.DataFrame(values, columns=names)
            table.to_csv(path, sep="\t", index=False, na_rep="n/a")
        if tr is not None:
            sidecar = path.name.removesuffix(".tsv").removesuffix(".ptseries.nii") + ".json"
            (path.parent / sidecar).write_text(json.dumps({"RepetitionTime": tr}))
        return values

    return write


@pytest.fixture
def make_derivative(tmp_path, write_series):
    """Write a derivative folder with one run a subject; return the folder."""

    def make(subjects=("01", "02", "03"), *, name=XCP_D, form=".tsv", tr=0.72, **options):
        folder = tmp_path / "derivative"
        for subject in subjects:
            stem = name.format(subject=subject)
            write_series(folder / f"{stem}_timeseries{form}", tr=tr, **options)
        return folder

    return make


@pytest.fixture
def load_quietly():
    """Load a folder, and fail on any warning."""

    def load(*args, **options):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return load_bids(*args, **options)

    return load


def _parcel_series(values, names, tr):
    structure = "CIFTI_STRUCTURE_CORTEX_LEFT"
    parcels = nib.cifti2.ParcelsAxis(
        names,
        [np.empty((0, 3), dtype=int)] * len(names),
        [{structure: np.array([vertex])} for vertex in range(len(names))],
        nvertices={structure: 32492},
    )
    series = nib.cifti2.SeriesAxis(0, tr, len(values))
    return nib.Cifti2Image(np.asarray(values, dtype=np.float32), (series, parcels))


@pytest.fixture(scope="session")
def make_cohort():
    """Build subjects whose 20 regions follow 4 latent networks, 5 neighbours each."""
    return _network_cohort


@pytest.fixture(scope="session")
def small():
    """Settings of a model that trains in a fraction of a second."""
    return FitSettings(
        width=16,
        heads=2,
        layers=1,
        window=10,
        batch_size=8,
        epochs=3,
        mask_ratio=0.5,
        test_mask_ratio=0.5,
        device="cpu",
    )


def _network_cohort(n_subjects=6, n_times=80, n_regions=20, **table):
    """Build runs with autoregressive networks; `table` becomes columns of participants.tsv."""
    rng = np.random.default_rng(7)
    runs = []
    for number in range(n_subjects):
        networks = rng.normal(size=(n_times + 20, 4))
        for t in range(1, len(networks)):
            networks[t] = 0.8 * networks[t - 1] + 0.6 * networks[t]
        values = np.repeat(networks[20:], 5, axis=1) + 0.5 * rng.normal(size=(n_times, 20))
        run = RegionTimeSeries(
            values=values[:, :n_regions],
            regions=[f"R{column:02d}" for column in range(n_regions)],
            subject=f"{number + 1:02d}",
            tr=0.72,
        )
        runs.append(run)
    participants = pd.DataFrame(table, index=[run.subject for run in runs]) if table else None
    return Cohort.from_runs(runs, participants=participants)


@pytest.fixture
def make_fit(tmp_path):
    """Write the model folder of a fit that learned the Yeo networks of 60 Glasser regions."""

    def make(*, folder="models", seed=0, encoding="learn", sigma=0.1, n_regions=60, **data):
        table = atlases.load("Glasser").regions
        table = table[table["yeo7"].isin(["Vis", "SomMot", "Default"])].iloc[::3]
        table = table.head(n_regions).reset_index(drop=True)
        return _write_fit(
            tmp_path / folder, table, encoding=encoding, sigma=sigma, seed=seed, **data
        )

    return make


def _write_fit(parent, regions, *, encoding, sigma, seed, window=20, n_test=2, **data):
    settings = FitSettings(encoding=encoding, sigma=sigma, seed=seed, window=window)
    rng = np.random.default_rng(seed)
    names = list(regions["name"])
    centres = np.random.default_rng(99).normal(size=(3, 8))
    codes = np.unique(regions["yeo7"], return_inverse=True)[1]
    turn = np.linalg.qr(rng.normal(size=(8, 8)))[0]
    learned = (centres[codes] + 0.5 * rng.normal(size=(len(names), 8))) @ turn
    learned *= encoding == "learn"
    start = sigma * rng.normal(size=learned.shape)
    series = centres[codes] @ rng.normal(size=(8, 200)) + rng.normal(size=(len(names), 200))
    tables = {
        name: None if encoding == "nope" else pd.DataFrame(values, index=names).rename(columns=str)
        for name, values in (("", start + learned), ("_change", learned))
    }
    errors = {"model": 0.7, "gaussian": 0.73, "zero": 1.0}
    subjects = [f"{number:02d}" for number in range(1, 7 + n_test)]
    test = subjects[6:]
    metrics = [(3, "validation", "model", 0.71 + seed / 100)]
    metrics += [(None, "validation", name, mse) for name, mse in errors.items() if name != "model"]
    metrics += [(3, "test", name, mse + seed / 100) for name, mse in errors.items() if test]
    by_region = [
        (region, subject, name, mse + rng.normal() / 50, 1 - mse, 100)
        for name, mse in errors.items()
        for subject in test
        for region in names
    ]
    parent.mkdir(exist_ok=True)
    fit = ModelFolder(
        path=parent / settings.name,
        settings=settings,
        data={
            "atlas": "Glasser2016_360",
            "sources": ["derivatives/xcp_d"],
            "fingerprint": "a1",
            "tr": 0.72,
            "n_subjects": len(subjects),
            **data,
        },
        regions=regions,
        dropped=pd.DataFrame({"name": [], "reason": []}, dtype=str),
        subjects=pd.DataFrame(
            {"subject": subjects, "split": ["train"] * 4 + ["validation"] * 2 + ["test"] * n_test}
        ),
        metrics=pd.DataFrame(metrics, columns=["epoch", "split", "predictor", "mse"]).assign(
            seconds=1.0, mask_ratio=0.9, r2=lambda table: 1 - table["mse"], n=1000
        ),
        positional_encoding=tables[""],
        positional_encoding_change=tables["_change"],
        functional_connectivity=pd.DataFrame(np.corrcoef(series), index=names, columns=names),
        region_errors=pd.DataFrame(
            by_region, columns=["region", "subject", "predictor", "mse", "r2", "n"]
        ),
    )
    write_model_folder(fit, {"weight": torch.zeros(1)})
    return fit.path


@pytest.fixture
def train_small(make_cohort, small, tmp_path):
    """Train on the small cohort, into `tmp_path / "out"` if nothing else is said."""

    def run(*, cohort=None, output_dir=tmp_path / "out", settings=small, **options):
        cohort = make_cohort() if cohort is None else cohort
        return train_models(cohort, output_dir=output_dir, settings=settings, **options)

    return run


@pytest.fixture(scope="session")
def small_derivative(tmp_path_factory):
    """Write the small cohort as a derivative folder with a participants table; only read it."""
    folder = tmp_path_factory.mktemp("small") / "derivative"
    rows = ["participant_id\tfamily"]
    for number, run in enumerate(_network_cohort()):
        file = folder / f"sub-{run.subject}/func/sub-{run.subject}_task-rest_timeseries.tsv"
        file.parent.mkdir(parents=True)
        pd.DataFrame(run.values, columns=run.regions).to_csv(file, sep="\t", index=False)
        file.with_suffix(".json").write_text(json.dumps({"RepetitionTime": run.tr}))
        rows.append(f"sub-{run.subject}\tfamily-{number // 2}")
    (folder / "participants.tsv").write_text("\n".join(rows) + "\n")
    return folder


@pytest.fixture
def small_options(small):
    """Spell the settings of small models as the command line does."""
    return [
        text
        for option in fields(small)
        if getattr(small, option.name) != option.default
        for text in (option_name(option.name), str(getattr(small, option.name)))
    ]


@pytest.fixture
def call(capsys):
    """Give the command line to a function; it returns exit status, output and errors."""

    def run(*arguments):
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return left.value.code, captured.out, captured.err

    return run
