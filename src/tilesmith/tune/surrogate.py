"""Corrects a cost model from measurements: a Gaussian process over ``log(measured / predicted)``.

Points of one solver are alike when they lie close on its axes (counted in steps, so that 64 -> 128 is one step, as
1 -> 2 is); all points of a solver share an offset, and all solvers share one. Reference: Rasmussen and Williams,
Gaussian Processes for Machine Learning, 2006, algorithm 2.1.
"""

from __future__ import annotations

import itertools
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

Array = NDArray[np.float64]

GLOBAL = 0.7  # how far predictions of all solvers may be off together, as a standard deviation of the logarithm
OFFSET = 0.5  # how far one solver's may be off beyond that
AMPLITUDES = (0.1, 0.25, 0.6)
DECAYS = (0.1, 0.3, 0.9)  # per step on an axis
NOISES = (0.015, 0.06, 0.2)  # of a measured time: a quiet machine, a busy one, a crowded one


@dataclass(frozen=True)
class Kernel:
    """Amplitude and decay of what points of one solver share, and the noise of measurements."""

    amplitude: float
    decay: float
    noise: float

    def covariance(self, arms_a: Array, steps_a: Array, arms_b: Array, steps_b: Array) -> Array:
        """Covariances of points given as solver numbers ``(n,)`` and positions on the axes ``(n, axes)``."""
        distance = np.abs(steps_a[:, None, :] - steps_b[None, :, :]).sum(axis=2)
        same = arms_a[:, None] == arms_b[None, :]
        near = self.amplitude**2 * np.exp(-self.decay * distance)
        shared: Array = GLOBAL**2 + same * (OFFSET**2 + near)
        return shared

    @property
    def variance(self) -> float:
        return GLOBAL**2 + OFFSET**2 + self.amplitude**2


@dataclass
class Posterior:
    """Mean and variance of the correction at each point of a pool; ``settle`` is told of points in work."""

    mean: Array
    variance: Array
    kernel: Kernel
    solvers: Array
    steps: Array
    whitened: Array  # observations x pool

    def settle(self, index: int) -> None:
        """Shrink the variances as if point ``index`` were measured already (its mean does not matter for that)."""
        prior = self.kernel.covariance(
            self.solvers[index : index + 1], self.steps[index : index + 1], self.solvers, self.steps
        )[0]
        covariance = prior - self.whitened[:, index] @ self.whitened
        scale = np.sqrt(max(self.variance[index], 0.0) + self.kernel.noise**2)
        row = covariance / scale
        self.variance = np.maximum(self.variance - row**2, 1e-12)
        self.whitened = np.vstack([self.whitened, row])


@lru_cache(maxsize=1)
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


def one_thread() -> AbstractContextManager[None]:
    """A context in which linear algebra takes one thread.

    The matrices have a hundred rows. With a thread for each core, beside compilers on all cores, each factorization
    waits for the last of its threads to be scheduled: seen as searches that took several times their seconds.
    """
    limited: AbstractContextManager[None] = _libraries().limit(limits=1, user_api="blas")
    return limited


def fit(solvers: Array, steps: Array, residuals: Array) -> Kernel:
    """The kernel under which the residuals are likeliest."""
    if len(residuals) < 6:
        return Kernel(0.25, 0.3, 0.02)
    kernels = [Kernel(*values) for values in itertools.product(AMPLITUDES, DECAYS, NOISES)]
    return max(kernels, key=lambda kernel: _likelihood(kernel, solvers, steps, residuals))


def condition(
    kernel: Kernel, solvers: Array, steps: Array, residuals: Array, pool_arms: Array, pool_steps: Array
) -> Posterior:
    """The posterior at a pool of points, given residuals at measured ones."""
    variance = np.full(len(pool_arms), kernel.variance)
    if not len(residuals):
        empty = np.zeros((0, len(pool_arms)))
        return Posterior(np.zeros(len(pool_arms)), variance, kernel, pool_arms, pool_steps, empty)
    lower = _cholesky(kernel, solvers, steps)
    cross = kernel.covariance(solvers, steps, pool_arms, pool_steps)
    whitened: Array = np.linalg.solve(lower, cross).astype(np.float64)
    mean: Array = whitened.T @ np.linalg.solve(lower, residuals)
    variance = np.maximum(variance - (whitened**2).sum(axis=0), 1e-12)
    return Posterior(mean, variance, kernel, pool_arms, pool_steps, whitened)


def _cholesky(kernel: Kernel, solvers: Array, steps: Array) -> Array:
    covariance = kernel.covariance(solvers, steps, solvers, steps) + kernel.noise**2 * np.eye(len(solvers))
    lower: Array = np.linalg.cholesky(covariance).astype(np.float64)
    return lower


def _likelihood(kernel: Kernel, solvers: Array, steps: Array, residuals: Array) -> float:
    lower = _cholesky(kernel, solvers, steps)
    white = np.linalg.solve(lower, residuals)
    return float(-0.5 * white @ white - np.log(np.diag(lower)).sum())
