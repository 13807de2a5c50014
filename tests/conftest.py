"""Shared fixtures: a seeded generator, and tiny derivative folders as pipelines write them."""

import json
import warnings
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from neuro_pe import atlases, load_bids

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
