import json

import nibabel as nib
import numpy as np
import pytest

import neuro_pe as npe
from neuro_pe.bids import demo_dir


@pytest.fixture(scope="module")
def demo():
    return npe.load_demo()


def test_twelve_subjects_of_360_named_regions(demo, glasser):
    assert demo.subjects == [f"{number:02d}" for number in range(1, 13)]
    assert {run.values.shape for run in demo} == {(400, 360)}
    assert demo.atlas == "Glasser2016_360"
    assert demo.region_names == glasser
    assert len(demo.dropped) == 0
    assert demo.coordinates.shape == (360, 3)
    assert list(demo.participants.index) == demo.subjects


def test_repetition_time_in_sidecar_and_header_agree(demo):
    for run in demo:
        assert run.tr == 0.72
        assert nib.load(run.source).header.get_axis(0).step == 0.72


def test_sixteen_bit_integers_are_scaled_back(demo):
    for run in demo:
        image = nib.load(run.source)
        stored = nib.Nifti2Image.from_filename(run.source).dataobj
        assert image.get_data_dtype() == np.int16
        # Rounding to one step of the scale costs at most half a step, which is far less than
        # the signal: r with the exact values is at least 1 - (step / SD)^2 / 24.
        worst = 1 - (stored.slope / image.get_fdata().std(axis=0).min()) ** 2 / 24
        assert stored.slope > 0
        assert worst > 0.9999999
        assert np.array_equal(
            image.get_fdata(), np.squeeze(stored.get_unscaled()) * stored.slope + stored.inter
        )


def test_neighbouring_regions_correlate_as_brains_do(demo):
    connectivity = demo.functional_connectivity()
    assert connectivity.loc["L_V1", "R_V1"] > 0.6
    assert connectivity.loc["L_V1", "R_V1"] > connectivity.loc["L_V1", "L_p10p"] + 0.3


def test_small_enough_to_bundle():
    files = [path for path in demo_dir().rglob("*") if path.is_file()]
    assert len(files) == 12 * 2 + 4
    assert sum(path.stat().st_size for path in files) < 5_000_000


def test_terms_and_acknowledgement_are_beside_the_data():
    terms = (demo_dir() / "LICENSE.txt").read_text()
    readme = (demo_dir() / "README.md").read_text()
    wording = terms.split("acknowledgments section: ")[1].split('"')[1]
    assert "WU-Minn HCP Consortium Open Access Data Use Terms" in terms
    assert wording.startswith("Data were provided [in part] by the Human Connectome Project")
    assert wording in readme
    description = json.loads((demo_dir() / "dataset_description.json").read_text())
    assert description["DatasetType"] == "derivative"
    assert description["HowToAcknowledge"] == wording


def test_parcels_keep_some_vertices_of_their_own():
    path = next(demo_dir().rglob("*.ptseries.nii"))
    parcels = nib.load(path).header.get_axis(1)
    vertices = [
        tuple(structure) + tuple(index)
        for parcel in parcels.vertices
        for structure, indices in parcel.items()
        for index in [(int(i),) for i in indices]
    ]
    assert len(set(vertices)) == len(vertices)
    assert all(sum(map(len, parcel.values())) >= 1 for parcel in parcels.vertices)
    assert set(parcels.nvertices.values()) == {32492}
