"""What can be done with a trained model: embed, score and fill in new subjects, save."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from neuro_pe._model_input import (
    as_cohort,
    as_runs,
    check_numbers,
    check_same_atlas,
    check_times,
    with_regions_of,
)
from neuro_pe.building import INITIAL
from neuro_pe.errors import InputError
from neuro_pe.imputation import (
    HiddenRegions,
    fill_run,
    pooled_errors,
    region_error_table,
)
from neuro_pe.model_folder import ModelFolder, partial_path, write_model_folder
from neuro_pe.reconstruction import EvaluationSet, ModelImputer
from neuro_pe.timeseries import Cohort, RegionTimeSeries
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

    def score_subjects(self, X: Any) -> pd.DataFrame:
        """Return errors on hidden regions subject by subject, beside a linear predictor.

        Parameters
        ----------
        X : as for :meth:`transform`
            Subjects that were not trained on.

        Returns
        -------
        DataFrame
            ``subject, predictor, mse, r2, n``; the predictors are ``model`` and ``gaussian``, the
            same-TR imputer of the same training subjects, on the same hidden values and with the
            ridge that is best for them.

        Examples
        --------
        >>> import neuro_pe as npe
        >>> model = npe.from_pretrained("results")  # doctest: +SKIP
        >>> model.score_subjects(npe.load_bids("other_people"))  # doctest: +SKIP
        """
        errors = pooled_errors(self._errors(X), "subject")
        return errors.drop(columns="n_subjects")

    def region_errors(self, X: Any, *, hidden: Sequence[str] | None = None) -> pd.DataFrame:
        """Return errors on hidden regions by region and subject, with the regions' networks.

        Parameters
        ----------
        X : as for :meth:`transform`
            Subjects that were not trained on.
        hidden : sequence of str or None
            Regions to hide in every window. None hides others in every window, at random, as many
            as the model's ``test_mask_ratio`` says.

        Returns
        -------
        DataFrame
            ``region, subject, predictor, mse, r2, n`` as in ``region_errors.tsv``, the predictors
            of :meth:`score_subjects`, and the hemisphere and network columns of the atlas.

        Raises
        ------
        InputError
            As :meth:`transform`, and if `hidden` names no region of the model, or all of them.

        Examples
        --------
        >>> import neuro_pe as npe
        >>> model = npe.from_pretrained("results")  # doctest: +SKIP
        >>> errors = model.region_errors(npe.load_bids("other_people"))  # doctest: +SKIP
        >>> errors.groupby(["yeo7", "predictor"])["r2"].mean()  # doctest: +SKIP
        """
        about = self.regions_.drop(columns=["x", "y", "z"], errors="ignore")
        about = about.rename(columns={"name": "region"}).astype({"region": str})
        return self._errors(X, hidden).merge(about, on="region", how="left")

    def impute(self, X: Any) -> Any:
        """Fill in the missing values of runs from the regions that are there.

        Missing are NaN, the regions of the model that have no column, and constant columns. What
        was measured stays as it is. A region that lacks some TRs is filled in on the scale of its
        others. A region that lacks all has no scale: it gets the median mean and the median
        standard deviation of the run's other regions, so its course over time means something,
        its level and amplitude do not. Filled values vary less than measured ones, and are
        functions of the other regions: do not count them as further evidence of connectivity.

        Parameters
        ----------
        X : Cohort, or sequence of ndarray or DataFrame of shape (time, region), one a subject
            What ``load_bids(..., keep_missing=True)`` returns, or arrays.

        Returns
        -------
        Cohort or list
            Of a cohort, a cohort with the regions of the model. Of a list, a list of the same
            kinds of things, with the columns as they came; data frames and
            :class:`neuro_pe.RegionTimeSeries` have those that they lacked behind them.

        Raises
        ------
        InputError
            If a run is shorter than a window, has no region of the model, or is of another atlas.

        Examples
        --------
        >>> import neuro_pe as npe
        >>> model = npe.from_pretrained("results")  # doctest: +SKIP
        >>> data = npe.load_bids("other_people", keep_missing=True)  # doctest: +SKIP
        >>> model.transform(model.impute(data)).shape  # doctest: +SKIP
        (20, 360, 128)
        """
        check_is_fitted(self)
        runs = as_runs(X)
        if isinstance(X, Cohort):
            check_same_atlas(self._folder, X)
        check_times(self._folder, runs)
        filled = []
        for run in runs:
            check_numbers(self._folder, run, run.n_regions)
            filled.append(fill_run(run, self._folder, ModelImputer(self.network_)).run)
        if not isinstance(X, Cohort):
            return [_in_form_of(given, run) for given, run in zip(X, filled, strict=True)]
        names = [str(name) for name in self.regions_["name"]]
        return Cohort.from_runs(
            [run.select(names) for run in filled],
            regions=self.regions_,
            atlas=X.atlas,
            participants=X.participants,
        )

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

    def _errors(self, X: Any, hidden: Sequence[str] | None = None) -> pd.DataFrame:
        source = self._source(X)
        held_out = (
            EvaluationSet(source, mask_ratio=self._folder.settings.test_mask_ratio)
            if hidden is None
            else HiddenRegions(source, hidden)
        )
        return region_error_table(held_out, self._folder, self.network_)

    def _source(self, X: Any) -> WindowSource:
        """Cut new runs into windows, with the regions of the model in its order."""
        check_is_fitted(self)
        settings = self._folder.settings
        cohort = with_regions_of(self._folder, as_cohort(X))
        return WindowSource(cohort, window=settings.window, stride=settings.stride)


def _in_form_of(given: Any, run: RegionTimeSeries) -> Any:
    """Return a filled run as the kind of thing that was given for it."""
    if isinstance(given, RegionTimeSeries):
        return run
    if not isinstance(given, pd.DataFrame):
        return run.values
    columns = [*given.columns, *run.regions[given.shape[1] :]]
    return pd.DataFrame(run.values, index=given.index, columns=columns)
