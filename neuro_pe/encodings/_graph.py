"""Encodings made from the functional connectivity of training subjects."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import skip_init

from neuro_pe.encodings._base import EncodingInputs, PositionalEncoding, register, reset_linear

__all__ = [
    "Gradients",
    "LaplacianEigenvectors",
    "Pearl",
    "diffusion_gradients",
    "laplacian_eigenvectors",
    "region_graph",
]

NEIGHBORS = 10
MAX_EIGENVECTORS = 32
MAX_GRADIENTS = 30  # of Brain-JEPA
KEPT_OF = 10  # one of so many entries of a row of the connectivity is kept for the gradients
PEARL_SAMPLES, PEARL_POWERS, PEARL_HIDDEN = 16, 8, 32


def region_graph(connectivity: np.ndarray, n_neighbors: int = NEIGHBORS) -> np.ndarray:
    """Link each region to its nearest neighbors in functional connectivity.

    Parameters
    ----------
    connectivity : ndarray, shape (region, region)
    n_neighbors : int
        Regions are linked if one of them is among the other's nearest, so some have more.

    Returns
    -------
    ndarray, shape (region, region)
        1 for a link, 0 for none and on the diagonal; symmetric.

    Examples
    --------
    >>> import numpy as np
    >>> from neuro_pe.encodings import region_graph
    >>> region_graph(np.array([[1, 0.9, 0.2], [0.9, 1, 0.4], [0.2, 0.4, 1]]), n_neighbors=1)
    array([[0., 1., 0.],
           [1., 0., 1.],
           [0., 1., 0.]])
    """
    others = np.array(connectivity, dtype=float)
    np.fill_diagonal(others, -np.inf)
    n_neighbors = min(n_neighbors, len(others) - 1)
    nearest = np.argsort(-others, axis=1, kind="stable")[:, :n_neighbors]
    graph = np.zeros_like(others)
    np.put_along_axis(graph, nearest, 1.0, axis=1)
    return np.maximum(graph, graph.T)


def laplacian_eigenvectors(graph: np.ndarray, count: int = MAX_EIGENVECTORS) -> np.ndarray:
    """Return the smoothest eigenvectors of the normalized Laplacian of a graph.

    Parameters
    ----------
    graph : ndarray, shape (region, region)
        Symmetric; every region has a link.
    count : int
        How many, at most; the first of all, which says nothing of a connected graph, is left out.

    Returns
    -------
    ndarray, shape (region, eigenvector)
        By ascending eigenvalue, of mean square 1, the entry of largest size positive.
    """
    laplacian = np.eye(len(graph)) - _normalized(graph)
    vectors = np.linalg.eigh(laplacian)[1][:, 1 : count + 1]
    return _signed(vectors) * len(graph) ** 0.5


def diffusion_gradients(connectivity: np.ndarray, count: int = MAX_GRADIENTS) -> np.ndarray:
    """Return the gradients of functional connectivity: its diffusion map.

    The largest tenth of each row is kept (negative ones are not), rows are compared by their
    normalized angle, and the diffusion map has an anisotropy of 0.5 and takes all scales together.

    Parameters
    ----------
    connectivity : ndarray, shape (region, region)
    count : int
        How many, at most.

    Returns
    -------
    ndarray, shape (region, gradient)
        By descending eigenvalue, the entry of largest size positive; scaled together, so that the
        first has a mean square of 1.

    References
    ----------
    Margulies et al. (2016), PNAS 113(44); Vos de Wael et al. (2020), "BrainSpace", Communications
    Biology 3:103; Coifman & Lafon (2006), Applied and Computational Harmonic Analysis 21.
    """
    n_regions = len(connectivity)
    n_kept = max(1, n_regions // KEPT_OF)
    threshold = np.sort(connectivity, axis=1)[:, [-n_kept]]
    kept = np.where(connectivity >= threshold, connectivity, 0).clip(min=0)
    kept /= np.linalg.norm(kept, axis=1, keepdims=True)
    affinity = 1 - np.arccos((kept @ kept.T).clip(-1, 1)) / np.pi
    # Divided by the square roots of its sums: W D^-1/2 D^-1/2, an anisotropy of 0.5.
    affinity = _normalized(affinity)
    # The walk's matrix D^-1 W has the eigenvalues of this symmetric one, and D^-1/2 its vectors.
    values, vectors = np.linalg.eigh(_normalized(affinity))
    values, vectors = values[::-1][: count + 1], vectors[:, ::-1][:, : count + 1]
    vectors = vectors / vectors[:, :1]  # the first belongs to the eigenvalue 1; D^-1/2 drops out
    gradients = vectors[:, 1:] * (values[1:] / (1 - values[1:]))
    return _signed(gradients) / np.sqrt(np.square(gradients[:, 0]).mean())


def _normalized(graph: np.ndarray) -> np.ndarray:
    """Divide by the square roots of the sums of both regions."""
    root = np.sqrt(graph.sum(axis=1))
    return graph / root / root[:, None]


def _signed(vectors: np.ndarray) -> np.ndarray:
    """Turn each vector so that its entry of largest size is positive."""
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=0)[None], axis=0)
    return vectors * np.sign(largest)


class _LinearMap(PositionalEncoding):
    """A learned linear map of what is known of each region."""

    known: torch.Tensor

    def __init__(self, inputs: EncodingInputs, known: np.ndarray) -> None:
        super().__init__(inputs)
        self.register_buffer("known", torch.tensor(known, dtype=torch.float32))
        self.linear = skip_init(nn.Linear, known.shape[1], inputs.width)
        self.reset_parameters(torch.Generator().manual_seed(0))

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw the map."""
        reset_linear(self.linear, generator)

    def forward(self) -> torch.Tensor:
        """Return the vectors, shape (region, width)."""
        return self.linear(self.known)


@register("laplacian")
class LaplacianEigenvectors(_LinearMap):
    """A learned linear map of the Laplacian eigenvectors of a graph of regions.

    The graph links each region to the 10 of largest functional connectivity in the training
    subjects; up to 32 eigenvectors. Their signs are fixed rather than flipped at random in
    training: the graph is the same in every window.

    Parameters
    ----------
    inputs : EncodingInputs
        `connectivity`.

    Raises
    ------
    InputError
        If there is no connectivity.

    References
    ----------
    Dwivedi et al. (2023), "Benchmarking graph neural networks", JMLR 24(43); Kreuzer et al.
    (2021), "Rethinking graph transformers with spectral attention", NeurIPS.
    """

    def __init__(self, inputs: EncodingInputs) -> None:
        graph = region_graph(inputs.need_connectivity("laplacian"))
        super().__init__(inputs, laplacian_eigenvectors(graph))


@register("gradient")
class Gradients(_LinearMap):
    """A learned linear map of up to 30 gradients of functional connectivity.

    Parameters
    ----------
    inputs : EncodingInputs
        `connectivity`.

    Raises
    ------
    InputError
        If there is no connectivity.

    References
    ----------
    Dong et al. (2024), "Brain-JEPA: brain dynamics foundation model with gradient positioning and
    spatiotemporal masking", NeurIPS. See :func:`diffusion_gradients`.
    """

    def __init__(self, inputs: EncodingInputs) -> None:
        super().__init__(inputs, diffusion_gradients(inputs.need_connectivity("gradient")))


@register("pearl")
class Pearl(PositionalEncoding):
    """A graph neural network on random numbers, mean over 16 draws of them.

    The graph is that of ``laplacian``. Each draw is passed along it 0 to 7 times (a filter bank),
    then come a layer of messages between linked regions, the mean over draws and a linear map.
    Numbers are drawn anew in every training step; outside training they are those of the start.

    Parameters
    ----------
    inputs : EncodingInputs
        `connectivity`.

    Raises
    ------
    InputError
        If there is no connectivity.

    References
    ----------
    Kanatsoulis et al. (2025), "Learning efficient positional encodings with graph neural
    networks", ICLR, arXiv 2502.01122 (R-PEARL). Batch norms have no parameters here.
    """

    links: torch.Tensor
    filtered: torch.Tensor
    redrawn: torch.Tensor

    def __init__(self, inputs: EncodingInputs) -> None:
        super().__init__(inputs)
        links = _normalized(region_graph(inputs.need_connectivity("pearl")))
        self.register_buffer("links", torch.tensor(links, dtype=torch.float32))
        shape = (inputs.n_regions, PEARL_SAMPLES, PEARL_POWERS)
        self.register_buffer("filtered", torch.zeros(shape))
        self.register_buffer("redrawn", torch.zeros(shape), persistent=False)
        self.filter = skip_init(nn.Linear, PEARL_POWERS, PEARL_HIDDEN)
        self.message = skip_init(nn.Linear, PEARL_HIDDEN, PEARL_HIDDEN)
        self.out = skip_init(nn.Linear, PEARL_HIDDEN, inputs.width)
        self.reset_parameters(torch.Generator().manual_seed(0))

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw the layers, and the random numbers that are used outside training."""
        for layer in (self.filter, self.message, self.out):
            reset_linear(layer, generator)
        self.filtered.copy_(self._draw(generator))
        self.redrawn.copy_(self.filtered)

    def resample(self, generator: torch.Generator) -> None:
        """Draw the random numbers of a training step."""
        self.redrawn.copy_(self._draw(generator))

    def _draw(self, generator: torch.Generator) -> torch.Tensor:
        """Draw numbers and pass them along the links, shape (region, draw, power)."""
        numbers = torch.randn(self.filtered.shape[:2], generator=generator).to(self.links.device)
        powers = [numbers]
        for _ in range(PEARL_POWERS - 1):
            powers.append(self.links @ powers[-1])
        return _standardized(torch.stack(powers, dim=-1))

    def forward(self) -> torch.Tensor:
        """Return the vectors, shape (region, width)."""
        filtered = self.redrawn if self.training else self.filtered
        # Standardizing would blow the rounding of bfloat16 up.
        with torch.autocast(filtered.device.type, enabled=False):
            hidden = functional.gelu(self.filter(filtered))  # (region, draw, hidden)
            received = (self.links @ hidden.flatten(1)).view_as(hidden)
            hidden = functional.gelu(self.message(hidden + received))
            return self.out(_standardized(hidden.mean(dim=1)))


def _standardized(values: torch.Tensor) -> torch.Tensor:
    """Standardize the last dimension over all others: a batch norm of this batch alone."""
    flat = values.flatten(0, -2)
    return functional.batch_norm(flat, None, None, training=True).view_as(values)
