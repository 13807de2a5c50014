"""
Does the positional encoding learn the brain's networks?
========================================================

A model hides nine of ten brain regions and reconstructs their signals from the rest. Nobody
tells it where a region is, or which network it belongs to: each region has a vector, its
positional encoding, that starts as noise and is learned with everything else. If regions of one
network end up with similar vectors, the model has found the networks by itself.

The demo data are 12 subjects of the Human Connectome Project at rest. Run with

    python examples/01_train_and_plot.py
"""

import argparse

import pandas as pd

import neuro_pe as npe
from neuro_pe.comparison import cosine_similarity
from neuro_pe.plotting import plot_similarity

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=100, help="passes through the data")
parser.add_argument("--output", default="encoding_by_network.png", help="the figure")
arguments = parser.parse_args()

# %%
# The data
# --------
# One run a subject, all with the same 360 regions in the same order. For data of your own:
# ``npe.load_bids("derivatives/xcp_d", atlas="Glasser")``.

data = npe.load_demo()
print(f"{len(data.subjects)} subjects, {len(data.region_names)} regions, TR {data.tr} s")

# %%
# Some subjects are kept for the end: an error on subjects that the model was trained on would say
# nothing.

training = data.select_subjects(data.subjects[:10])
unseen = data.select_subjects(data.subjects[10:])

# %%
# The fit
# -------
# ``sigma`` is the standard deviation of the noise that the encoding starts from. With a small one
# the encoding has to take its shape from the data; with 1.0 the noise stays.

model = npe.MaskedRegionModel(
    encoding="learn", sigma=0.1, mask_ratio=0.9, epochs=arguments.epochs, random_state=0
)
model.fit(training)
print(f"R2 on hidden regions of unseen subjects: {model.score(unseen):.3f}")

# %%
# The answer
# ----------
# Yeo's seven networks, beside the same numbers for functional connectivity. ``z`` compares with
# networks whose labels were dealt out at random. A warning says how many regions are in none of
# the seven; those are left out.

networks = npe.atlases.load("Glasser").partition("yeo7")
table = npe.compare_networks(
    model.positional_encoding_,
    partition=networks,
    functional_connectivity=model.functional_connectivity_,
    n_permutations=200,
)
shown = table["statistic"].isin(["within_minus_between", "ari"]) & (table["network"] == "all")
print(table[shown][["source", "statistic", "value", "z", "p"]].to_string(index=False))

# %%
# The same as a picture: similarity of all pairs of regions, sorted by network. Networks that the
# encoding has learned are red squares on the diagonal.

names = model.positional_encoding_.index
similarity = pd.DataFrame(
    cosine_similarity(model.positional_encoding_.to_numpy()), index=names, columns=names
)
figure = plot_similarity(
    similarity,
    networks,
    title="Similarity of the learned positional encodings",
    label="cosine similarity",
)
figure.savefig(arguments.output, dpi=150)
print(f"Figure: {arguments.output}")
