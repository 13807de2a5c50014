"""What would be seen if a partition had nothing to do with a similarity matrix."""

import warnings
from collections.abc import Mapping

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from scipy.optimize import linear_sum_assignment

from neuro_pe.errors import InputError

__all__ = ["label_permutations", "null_permutations", "spin_permutations"]


def label_permutations(n_regions: int, *, n_permutations: int = 1000, seed: int = 0) -> np.ndarray:
    """Orders that deal the network labels out at random.

    Parameters
    ----------
    n_regions : int
    n_permutations : int
    seed : int

    Returns
    -------
    ndarray of int, shape (n_permutations, region)
        ``labels[permutations[i]]`` are the labels of the i-th null.

    Examples
    --------
    >>> from neuro_pe.comparison import label_permutations
    >>> label_permutations(4, n_permutations=2).shape
    (2, 4)
    """
    rng = np.random.default_rng([seed, 0])
    return rng.permuted(np.tile(np.arange(n_regions), (n_permutations, 1)), axis=1)


def spin_permutations(
    coordinates: np.ndarray,
    hemispheres: np.ndarray,
    *,
    n_permutations: int = 1000,
    seed: int = 0,
) -> np.ndarray:
    """Orders that turn the map of the regions as a whole, so that neighbours stay neighbours.

    Each hemisphere's regions are projected to a sphere around their centre, turned by a random
    rotation (the right hemisphere by its mirror image), and each region takes the label of a
    turned region, one to one, so that the summed squared distance is smallest. Labels stay in
    their hemisphere. Rotations come in pairs, each with its inverse, which halves the time.

    Parameters
    ----------
    coordinates : ndarray, shape (region, 3)
        MNI x y z in mm.
    hemispheres : ndarray of str, shape (region,)
        ``"L"`` or ``"R"``; regions with another value form a group of their own.
    n_permutations : int
    seed : int

    Returns
    -------
    ndarray of int, shape (n_permutations, region)
        ``labels[permutations[i]]`` are the labels of the i-th null.

    Raises
    ------
    InputError
        If a coordinate is not finite.

    Notes
    -----
    The rotation is meant for points on an inflated cortical sphere. Volume centroids projected
    from the centre of a hemisphere are a coarser map of the cortex: the banks of a sulcus and
    the insula fall on each other, and subcortical regions have no place on it. The null then
    keeps less of the spatial autocorrelation than a surface-based one would.

    References
    ----------
    Alexander-Bloch et al. (2018), NeuroImage 178, for the spin; Vasa et al. (2018), Cerebral
    Cortex 28, for parcels, one to one; Markello and Misic (2021), NeuroImage 236, for how these
    nulls compare.

    Examples
    --------
    >>> import numpy as np
    >>> from neuro_pe.comparison import spin_permutations
    >>> xyz = np.random.default_rng(0).normal(size=(6, 3))
    >>> spins = spin_permutations(xyz, np.array(list("LLLRRR")), n_permutations=5)
    >>> bool((spins[:, :3] < 3).all())
    True
    """
    coordinates = np.asarray(coordinates, dtype=float)
    if not np.isfinite(coordinates).all():
        row = int(np.flatnonzero(~np.isfinite(coordinates).all(axis=1))[0])
        msg = f"coordinates: row {row} is not finite; expected x, y and z in mm."
        raise InputError(msg)
    rotations = _random_rotations((n_permutations + 1) // 2, np.random.default_rng([seed, 1]))
    mirror = np.diag([-1.0, 1.0, 1.0])
    orders = np.empty((n_permutations, len(coordinates)), dtype=np.intp)
    for side in np.unique(np.asarray(hemispheres)):
        members = np.flatnonzero(np.asarray(hemispheres) == side)
        sphere = _on_sphere(coordinates[members])
        turns = mirror @ rotations @ mirror if side == "R" else rotations
        # The assignment releases the interpreter's lock, so threads share the work.
        taken = Parallel(n_jobs=-1, prefer="threads")(
            delayed(_nearest_one_to_one)(sphere, turn) for turn in turns
        )
        # The best assignment of a rotation, inverted, is that of the inverse rotation.
        both = np.stack([order for one in taken for order in (one, np.argsort(one))])
        orders[:, members] = members[both[:n_permutations]]
    return orders


def null_permutations(
    names: list[str],
    *,
    coordinates: pd.DataFrame | None = None,
    n_permutations: int = 1000,
    seed: int = 0,
) -> Mapping[str, np.ndarray]:
    """Permutations of every null that the regions allow, by name.

    Parameters
    ----------
    names : list of str
        Regions, in the order of the similarity matrix.
    coordinates : DataFrame or None
        Columns ``x``, ``y``, ``z`` (MNI, mm) and, if known, ``hemisphere`` (else the sign of x
        tells it); indexed by region name, or with a column ``name``.
    n_permutations, seed : int

    Returns
    -------
    dict
        ``"label_permutation"`` and, with coordinates of all regions, ``"spin"``: arrays of shape
        (n_permutations, region).

    Raises
    ------
    InputError
        If a region is missing from `coordinates`.

    Examples
    --------
    >>> from neuro_pe.comparison import null_permutations
    >>> list(null_permutations(["a", "b", "c"], n_permutations=10))
    ['label_permutation']
    """
    orders = {
        "label_permutation": label_permutations(
            len(names), n_permutations=n_permutations, seed=seed
        )
    }
    if coordinates is None:
        return orders
    table = coordinates.set_index("name") if "name" in coordinates else coordinates
    if not {"x", "y", "z"} <= set(table.columns):
        msg = f"coordinates: found columns {list(table.columns)}; expected x, y and z (MNI, mm)."
        raise InputError(msg)
    missing = [name for name in names if name not in table.index]
    if missing:
        msg = (
            f"coordinates: {len(missing)} of {len(names)} regions are missing "
            f"(first: {', '.join(missing[:3])}); expected one row a region."
        )
        raise InputError(msg)
    table = table.loc[names]
    xyz = table[["x", "y", "z"]].to_numpy(dtype=float)
    without = int((~np.isfinite(xyz).all(axis=1)).sum())
    if without:
        msg = (
            f"{without} of {len(names)} regions have no coordinates; the spatial null (spin) is "
            "left out."
        )
        warnings.warn(msg, stacklevel=2)
        return orders
    side = np.where(xyz[:, 0] < 0, "L", "R")
    if "hemisphere" in table:
        given = table["hemisphere"].astype("string").fillna("").str.upper().str[:1].to_numpy()
        side = np.where(np.isin(given, ["L", "R"]), given, side).astype(str)
    orders["spin"] = spin_permutations(xyz, side, n_permutations=n_permutations, seed=seed)
    return orders


def _random_rotations(count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw rotations uniformly: QR of normal matrices, signs fixed, reflections turned back."""
    q, r = np.linalg.qr(rng.normal(size=(count, 3, 3)))
    q = q * np.sign(np.diagonal(r, axis1=1, axis2=2))[:, None, :]
    q[:, :, 0] *= np.sign(np.linalg.det(q))[:, None]
    return q


def _nearest_one_to_one(sphere: np.ndarray, turn: np.ndarray) -> np.ndarray:
    """Return which turned point each point takes, at the smallest summed squared distance."""
    # Squared distances on the sphere order like negative inner products.
    return linear_sum_assignment(-(sphere @ turn @ sphere.T))[1]


def _on_sphere(coordinates: np.ndarray) -> np.ndarray:
    centred = coordinates - coordinates.mean(axis=0)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    return centred / np.where(length > 0, length, 1.0)
