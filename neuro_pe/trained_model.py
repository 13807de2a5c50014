"""What can be done with a trained model: embed, score and fill in new subjects, save."""

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from neuro_pe._model_input import as_cohort, with_regions_of
from neuro_pe.errors import InputError
from neuro_pe.fitting import INITIAL
from neuro_pe.model_folder import ModelFolder, partial_path, write_model_folder
from neuro_pe.reconstruction import EvaluationSet, ModelImputer
from neuro_pe.transformer import MaskedRegionTransformer
from neuro_pe.windows import WindowSource

__all__ = ["TrainedModel"]


class TrainedModel(TransformerMixin, BaseEstimator):
    """The part of :class:`neuro_pe.MaskedRegionModel` that needs no training data.

    Its attributes and an example stand there.
    """

    network_: MaskedRegionTransformer
    regions_: pd.DataFrame
    _folder: ModelFolder
    _initial: np.ndarray | None

    def transform(self, X: Any) -> np.ndarray:
        """Embed the regions of subjects: encoder output with all regions visible.

        Parameters
        ----------
        X : Cohort, or sequence of ndarray of shape (time, region), one a subject
            Any data set with the regions of the model, found by name.

        Returns
        -------
        ndarray of float32, shape (subject, region, width)
            Mean over the windows of a subject.

        Raises
        ------
        InputError
            If a region of the model has no signal, or is another parcel of the same name.
        """
        source = self._source(X)
        windows = source.evaluation_windows()
        n_regions = len(self.regions_)
        total = np.zeros((len(source.subjects), n_regions, self.network_.embed.out_features))
        for batch in windows.split(64):
            visible = torch.arange(n_regions).expand(len(batch), -1)
            with torch.no_grad():
                tokens = self.network_.encode(source.gather(batch), visible).numpy()
            np.add.at(total, source.subject_of_run[batch[:, 0].numpy()], tokens)
        count = np.bincount(source.subject_of_run[windows[:, 0].numpy()])
        return (total / count[:, None, None]).astype(np.float32)

    def score(self, X: Any, y: None = None) -> float:
        """Return R2 on hidden regions; higher is better, 0 is predicting each region's mean.

        Parameters
        ----------
        X : as for :meth:`transform`
            Subjects that were not trained on.
        y : None
            Ignored.
        """
        source = self._source(X)
        held_out = EvaluationSet(source, mask_ratio=self._folder.settings.test_mask_ratio)
        squared, squares, _ = held_out.errors(ModelImputer(self.network_)).sum(axis=(1, 2))
        return float(1 - squared / squares)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a model folder, as ``neuro-pe train`` does.

        Parameters
        ----------
        path : path-like
            Must not exist.
        """
        check_is_fitted(self)
        path = Path(path)
        for place in (path, partial_path(path)):
            if place.exists():
                msg = f"{place}: exists already; choose another folder."
                raise InputError(msg)
        weights = self.network_.state_dict()
        if self._initial is not None:
            weights[INITIAL] = torch.from_numpy(self._initial)
        try:
            write_model_folder(replace(self._folder, path=path), weights)
        except BaseException:
            shutil.rmtree(partial_path(path), ignore_errors=True)
            raise

    def _adopt(
        self, folder: ModelFolder, network: MaskedRegionTransformer, initial: np.ndarray | None
    ) -> Self:
        self._folder = folder
        self._initial = initial
        self.network_ = network
        self.regions_ = folder.regions
        self.metrics_ = folder.metrics
        self.positional_encoding_ = folder.positional_encoding
        self.positional_encoding_change_ = folder.positional_encoding_change
        self.functional_connectivity_ = folder.functional_connectivity
        self.n_features_in_ = len(folder.regions) + len(folder.dropped)
        return self

    def _source(self, X: Any) -> WindowSource:
        """Cut new runs into windows, with the regions of the model in its order."""
        check_is_fitted(self)
        settings = self._folder.settings
        cohort = with_regions_of(self._folder, as_cohort(X))
        return WindowSource(cohort, window=settings.window, stride=settings.stride)
