"""Shared fixtures: a seeded generator, and tiny derivative folders as pipelines write them."""

import json
import warnings
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from neuro_pe import Cohort, FitSettings, RegionTimeSeries, atlases, load_bids

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
