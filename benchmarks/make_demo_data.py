"""Make the bundled demo data from the 20-subject HCP resting-state folder.

    python benchmarks/make_demo_data.py DIR [--output-dir neuro_pe/demo_data]

DIR is a BIDS derivative of Glasser-360 time series (``sub-*/func/*_timeseries.ptseries.nii`` with
their JSON sidecars and ``LICENSE.txt``, the HCP data use terms). The first 12 subjects and their
first 400 volumes are kept, as 16-bit integers with a scale; a region keeps every eighth of its
surface vertices, so that the files fit a Python package and still open in Connectome Workbench.
"""

import argparse
import shutil
from pathlib import Path

import nibabel as nib
import numpy as np

from neuro_pe.derivatives import write_json

SUBJECTS = [f"{number:02d}" for number in range(1, 13)]
VOLUMES = 400
KEEP_EVERY = 8

README = """\
# Demo data of neuro_pe: resting-state fMRI of 12 people, 360 brain regions

Real data of the Human Connectome Project (HCP): the mean signal of each of the 360 cortical
regions of the Glasser 2016 atlas (HCP-MMP1.0), one resting-state run a subject, repetition time
0.72 s. They serve to try the toolbox and to test it, not to answer a scientific question.

## Terms
The data are redistributed under the WU-Minn HCP Consortium Open Access Data Use Terms, which
stand in `LICENSE.txt`; whoever uses or passes on these data accepts the same terms. Clause 5a
asks that results derived from them carry these words in the acknowledgments:

> "{acknowledgement}"

## What was done to the data
The source are the parcellated example data of the ActflowToolbox: HCP minimally preprocessed
data with nuisance regression, averaged within regions. From its first 12 subjects this folder
keeps the first {volumes} volumes (288 s) of the run. Values were rounded to 16-bit integers with
one scale and offset a file (`scl_slope`, `scl_inter`; NIfTI readers apply them by themselves).
The list of surface vertices of each region keeps every eighth vertex: it shows where a region
lies and is no parcellation of the surface; take that from the atlas. Nothing else was changed.
Subject labels are numbers of this folder and say nothing about the identity of anybody.

`benchmarks/make_demo_data.py` in the source repository made this folder.
"""


def main() -> None:
    """Write the demo data."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, help="folder of the 20-subject derivative")
    parser.add_argument("--output-dir", type=Path, default=Path("neuro_pe/demo_data"))
    arguments = parser.parse_args()
    source, output = arguments.source, arguments.output_dir
    output.mkdir(parents=True, exist_ok=True)
    for subject in SUBJECTS:
        (path,) = (source / f"sub-{subject}" / "func").glob("*_timeseries.ptseries.nii")
        target = output / f"sub-{subject}" / "func" / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        error = shorten(path, target)
        sidecar = path.with_name(path.name.replace(".ptseries.nii", ".json"))
        (target.parent / sidecar.name).write_text(sidecar.read_text().rstrip() + "\n")
        print(f"{target.name}  {target.stat().st_size} bytes, largest error {error:.3g} SD")
    write_descriptions(source, output)
    total = sum(path.stat().st_size for path in output.rglob("*") if path.is_file())
    print(f"total {total / 1e6:.2f} MB")


def shorten(path: Path, target: Path) -> float:
    """Write the shortened 16-bit copy; return its largest error in units of a region's SD."""
    image = nib.load(path)
    series, parcels = (image.header.get_axis(axis) for axis in (0, 1))
    vertices = [
        {structure: index[::KEEP_EVERY] for structure, index in parcel.items()}
        for parcel in parcels.vertices
    ]
    parcels = nib.cifti2.ParcelsAxis(
        parcels.name, parcels.voxels, vertices, nvertices=parcels.nvertices
    )
    values = image.get_fdata()[:VOLUMES]
    short = nib.Cifti2Image(values, (series[:VOLUMES], parcels))
    short.nifti_header.set_intent("ConnParcelSries", name="ConnParcelSries")
    short.nifti_header.set_xyzt_units("mm", "sec")
    # Given an integer type, nibabel fits scl_slope and scl_inter to the values as it writes.
    short.to_filename(target, dtype=np.int16)
    stored = nib.load(target).get_fdata()
    return float(np.max(np.abs(stored - values).max(axis=0) / values.std(axis=0)))


def write_descriptions(source: Path, output: Path) -> None:
    """Write what belongs to a BIDS derivative beside its data, and the terms."""
    terms = (source / "LICENSE.txt").read_text()
    shutil.copyfile(source / "LICENSE.txt", output / "LICENSE.txt")
    acknowledgement = terms.split("acknowledgments section: ")[1].split('"')[1]
    readme = README.format(acknowledgement=acknowledgement, volumes=VOLUMES)
    (output / "README.md").write_text(readme)
    description = {
        "Name": "HCP resting state, Glasser 360 regions, 12 subjects, 400 volumes each",
        "BIDSVersion": "1.10.0",
        "DatasetType": "derivative",
        "License": "WU-Minn HCP Consortium Open Access Data Use Terms (see LICENSE.txt)",
        "HowToAcknowledge": acknowledgement,
        "GeneratedBy": [
            {
                "Name": "benchmarks/make_demo_data.py of neuro_pe",
                "Description": "First 400 volumes, 16-bit integers, every eighth vertex",
            }
        ],
        "SourceDatasets": [{"URL": "https://github.com/ColeLab/ActflowToolbox"}],
    }
    write_json(description, output / "dataset_description.json")
    rows = ["participant_id", *(f"sub-{subject}" for subject in SUBJECTS)]
    (output / "participants.tsv").write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
