"""Laws defined by a transform and a base."""

import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from math import isfinite
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor
from torch.distributions import Distribution, constraints, register_kl

from bnaf._checks import in_precision, one_of, whole
from bnaf._random import private_draws
from bnaf._torch import traced
from bnaf.errors import InversionError, RedrawWarning, SettingsError, ShapeError
from bnaf.laws.bases import StandardNormal, StudentRows
from bnaf.laws.cells import Cells
from bnaf.laws.estimates import DRAWS, estimate_divergence, estimate_mean, estimate_moments
from bnaf.laws.law import RowLaw
from bnaf.laws.normal import normal_cdf
from bnaf.laws.transforms import Passage, RowTransform, reached

MAX_REDRAWS = 1000


class FlowDistribution(RowLaw):
    r"""Law of x when ``z = transform(x)`` follows ``base``.

    .. math:: \log p(x) = \log p_Z(f(x)) + \log |\det J_f(x)|

    It is a snapshot of the flow that made it: after a step of an optimiser it is still the law
    from before, or refuses to be used; call the flow again for the new one. Rows with a value that
    is not finite have log-density -inf.

    Args:
        transform: The bijection f.
        base: Law of z over rows of the same number of features: any of torch's, made one of rows
            by ``Independent(law, 1)``.
        batch_shape: Batch shape wanted; that of the context and of the base broaden it.
        validate_args: Whether rows that are undefined numbers raise, as in torch, rather than
            having density zero.
        watched: Weights that the transform looks up when it is used, and that must not have
            changed by then.

    Raises:
        ShapeError: If the base is not a law over such rows.
    """

    arg_constraints: dict[str, constraints.Constraint] = {}  # noqa: RUF012

    def __init__(
        self,
        transform: RowTransform,
        base: Distribution,
        batch_shape: Sequence[int] = (),
        *,
        validate_args: bool = False,
        watched: Sequence[Tensor] = (),
    ) -> None:
        if base.event_shape != (transform.features,):
            raise ShapeError(
                f"base must be a law over rows of {transform.features} features, got one of event "
                f"shape {tuple(base.event_shape)}; make it so with Independent(base, 1)."
            )
        self._transform, self.base = transform, base
        shapes = [s for s in (batch_shape, transform.context_batch, base.batch_shape) if len(s)]
        batch = shapes[0] if shapes else ()
        if any(shape != batch for shape in shapes):  # torch takes its time with those alike
            batch = torch.broadcast_shapes(*shapes)
        super().__init__(transform.features, transform.like, batch, watched=watched)
        self._validate_args = validate_args

    @property
    def transform(self) -> RowTransform:
        """The bijection from rows to base noise.

        Raises:
            StaleLawError: If it looks weights up that have changed since the law was made.
        """
        self._check_unchanged()
        return self._transform

    @property
    def support(self) -> constraints.Constraint:
        """What rows keep to: the domain of the transform."""
        return self._transform.domain

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """Whether gradients flow through draws: where they do through those of the base."""
        return bool(self.base.has_rsample)

    def log_prob(self, value: Tensor) -> Float[Tensor, "..."]:
        """Return the log-density of each row, in nats.

        Raises:
            ValueError: If ``validate_args`` was set and a row holds an undefined number.
        """
        value = self._checked(value)
        if self._validate_args:
            self._validate_sample(value)
        if value.device.type == "cpu" and not traced() and isfinite(value.detach().sum()):
            return self._log_prob(value)  # the usual case, in fewer operations
        finite = value.isfinite().all(-1)
        log_prob = self._log_prob(torch.where(finite.unsqueeze(-1), value, 0.0))
        return torch.where(finite, log_prob, -torch.inf)

    def _log_prob(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return the log-density of finite rows."""
        if isinstance(self.base, StandardNormal):  # the usual case, and the shorter way
            log_prob, inside = self._transform._pull_back(x)  # of rows that were checked
        else:
            z, log_det, inside = self._transform.map(x)
            log_prob = self._base_log_prob(z) + log_det
        return log_prob if inside is None else torch.where(inside, log_prob, -torch.inf)

    def _base_log_prob(self, z: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return the log-density of noise, -inf outside the support of the base."""
        support = self.base.support
        if support is None or traced():
            return self.base.log_prob(z)
        within: Tensor = support.check(z)
        if within.all():
            return self.base.log_prob(z)
        log_prob = self.base.log_prob(torch.where(within.unsqueeze(-1), z, self.base.mean))
        return torch.where(within, log_prob, -torch.inf)

    def base_noise(self, value: Tensor) -> Float[Tensor, "..."]:
        """Return z = transform(x) of each row; infinite where a row has none."""
        z, _, inside = self.transform.map(self._checked(value), ladj=False)
        return z if inside is None else torch.where(inside.unsqueeze(-1), z, torch.inf)

    def normal_scores(self, value: Tensor) -> Float[Tensor, "..."]:
        """Return the noise of each row as quantiles of the normal law, whatever the base is.

        Raises:
            SettingsError: If the base is not one of the library's.
        """
        return self._known_base.normal_scores(self.base_noise(value))

    def at_normal_scores(self, scores: Tensor) -> Float[Tensor, "..."]:
        """Return the rows whose normal scores these are.

        Raises:
            SettingsError: If the base is not one of the library's.
            InversionError: If some have no pre-image.
        """
        z = self._known_base.from_normal_scores(scores)
        return reached(self.transform.invert(z)).rows

    @property
    def _known_base(self) -> StandardNormal | StudentRows:
        if isinstance(self.base, StandardNormal | StudentRows):
            return self.base
        raise SettingsError(
            f"Normal scores are known of bases that flows make, got {type(self.base).__name__}; "
            "use base_noise."
        )

    @property
    def mean(self) -> Float[Tensor, "*batch features"]:
        """The mean, as 10,000 draws of a fixed seed estimate it."""
        return estimate_moments(self)[0]

    @property
    def variance(self) -> Float[Tensor, "*batch features"]:
        """The variance of each feature, as 10,000 draws of a fixed seed estimate it."""
        return estimate_moments(self)[1]

    def entropy(
        self, *, draws: int = DRAWS, generator: Generator | None = None
    ) -> Float[Tensor, "*batch"]:
        """Return the entropy in nats, as draws estimate it, with gradients.

        Args:
            draws: How many, for each context.
            generator: Where they come from; torch's own by default.
        """
        if not self.has_rsample:
            return estimate_mean(
                self, lambda rows: -self.log_prob(rows), draws=draws, generator=generator
            )
        log_prob = self.rsample_and_log_prob((whole("draws", draws),), generator=generator)[1]
        return -log_prob.mean(0)

    def cdf(self, value: Tensor) -> Float[Tensor, "..."]:
        """Return the probability of at most each row, of a law of one feature.

        Raises:
            SettingsError: If it has several, or its base is not one of the library's.
        """
        self._expect_one_feature("cdf")
        scores = self.normal_scores(value).squeeze(-1)
        # a row out of reach lies beyond all draws, on its side of the middle
        middle = self.at_normal_scores(self._middle)[..., 0]
        side = torch.where(value.squeeze(-1) < middle, -torch.inf, torch.inf)
        return normal_cdf(torch.where(scores.isinf(), side, self._sign * scores))

    def icdf(self, value: Tensor) -> Float[Tensor, "..."]:
        """Return the quantiles of levels, of a law of one feature, as rows.

        Raises:
            SettingsError: If it has several, or its base is not one of the library's.
        """
        self._expect_one_feature("icdf")
        scores = self._sign * torch.special.ndtri(value)
        return self.at_normal_scores(scores.unsqueeze(-1))

    def log_mean_density(self, value: Tensor, cells: Tensor) -> Float[Tensor, "..."]:
        """Return the logarithm of the mean density of cells, of a law of one feature.

        It is that of a cell's mass less that of its width.

        Args:
            value: Rows within the cells.
            cells: How far the cell of each row reaches down and up; where it does not reach
                anywhere, this is the density of the row.

        Raises:
            SettingsError: If the law has several features, or is none of a B-NAF in the density
                direction on a normal base that was not scaled.
            ShapeError: If there are not two numbers for each row.
        """
        self._expect_one_feature("log_mean_density")
        log_shares = getattr(self.transform, "log_shares", None)
        if log_shares is None or not isinstance(self.base, StandardNormal):
            raise SettingsError(
                "log_mean_density is of B-NAF in the density direction, on a normal base that was "
                "not scaled; take differences of cdf."
            )
        value, cells = self._checked(value), in_precision(cells, self.like)
        if cells.shape != (*value.shape[:-1], 2):
            raise ShapeError(
                f"cells must have two numbers for each row, shape {(*value.shape[:-1], 2)}, got "
                f"{tuple(cells.shape)}."
            )
        below, above = cells.unsqueeze(-2).unbind(-1)
        known = torch.ones_like(below, dtype=torch.bool)
        shares: Tensor = log_shares(Cells(value, below, above, known))
        width = (below + above).squeeze(-1)
        found: Tensor = shares.squeeze(-1) - torch.where(width > 0, width, 1.0).log()
        return found

    @property
    def _middle(self) -> Tensor:
        return self.transform.like.new_zeros(*self.batch_shape, 1)

    @property
    def _sign(self) -> Tensor:
        """Whether noise rises (1) or falls (-1) with rows of one feature."""
        near, far = (self.at_normal_scores(self._middle + step) for step in (0.0, 0.5))
        return (far - near).squeeze(-1).sign().detach()

    def _expect_one_feature(self, name: str) -> None:
        if self.features > 1:
            raise SettingsError(
                f"{name} is of laws of one feature, got {self.features}; count samples instead."
            )

    def sample(
        self,
        sample_shape: Any = torch.Size(),  # noqa: B008
        *,
        outside: str = "raise",
        generator: Generator | None = None,
    ) -> Float[Tensor, "..."]:
        """Draw rows, without gradients.

        Args:
            sample_shape: How many, in what shape; the batch shape of the law follows.
            outside: What to do with draws of the base that have no pre-image, under a flow that is
                not onto: "raise" an error, or "redraw" them, with a warning that says how many.
            generator: Where the draws come from; torch's own by default.

        Raises:
            InversionError: If some draw has no pre-image and is not to be redrawn.
        """
        one_of("outside", outside, ("raise", "redraw"))
        with torch.no_grad():
            if outside == "raise" or self.onto:
                return reached(self._draw(sample_shape, generator)).rows
            x, missed = self.draw_inside(sample_shape, generator)
            redrawn = 0
            for _ in range(MAX_REDRAWS):
                if not missed.any():
                    break
                redrawn += int(missed.sum())
                if self.batch_shape.numel() == 1:  # any row will do: draw only what is missing
                    again, outside_still = self.draw_inside((int(missed.sum()),), generator)
                    x[missed] = again.reshape(-1, self.features)
                    missed[missed.clone()] = outside_still.flatten()
                else:
                    again, outside_still = self.draw_inside(sample_shape, generator)
                    x = torch.where(missed.unsqueeze(-1), again, x)
                    missed = missed & outside_still
            if missed.any():
                raise InversionError(
                    f"{int(missed.sum())} of {missed.numel()} draws have no pre-image after "
                    f"{MAX_REDRAWS} attempts; the flow reaches almost nothing of its base, see "
                    "missing_mass()."
                )
        if redrawn:
            warnings.warn(
                f"{redrawn} draws of the base without pre-image were redrawn.",
                RedrawWarning,
                stacklevel=2,
            )
        return x

    def rsample(
        self,
        sample_shape: Any = torch.Size(),  # noqa: B008
        *,
        generator: Generator | None = None,
    ) -> Float[Tensor, "..."]:
        """Draw rows through which gradients flow; see :meth:`sample`.

        Raises:
            SettingsError: If the base cannot be drawn so.
        """
        self._check_gradients()
        return reached(self._draw(sample_shape, generator)).rows

    def draw_inside(
        self, sample_shape: Any, generator: Generator | None = None
    ) -> tuple[Float[Tensor, "..."], Bool[Tensor, "..."]]:
        """Draw rows once, and tell which draws of the base have no pre-image."""
        x, log_det, inside = self._draw(sample_shape, generator)
        outside = torch.zeros_like(log_det, dtype=torch.bool) if inside is None else ~inside
        return x, outside

    @property
    def onto(self) -> bool:
        """Whether every draw of the base is known to have a pre-image."""
        return self.transform.onto

    def rsample_and_log_prob(
        self,
        sample_shape: Any = torch.Size(),  # noqa: B008
        *,
        generator: Generator | None = None,
    ) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
        """Draw rows and return them with their log-densities, from one pass."""
        self._check_gradients()
        z = self._draw_base(sample_shape, generator)
        x, log_det, _ = reached(self.transform.invert(z, ladj=True))
        return x, self.base.log_prob(z) - log_det

    @property
    def direction(self) -> str:
        """Which side is closed-form: "density" or "sampling"."""
        return "sampling" if self._transform.inverted else "density"

    def _draw(self, sample_shape: Any, generator: Generator | None) -> Passage:
        return self.transform.invert(self._draw_base(sample_shape, generator))

    def _check_gradients(self) -> None:
        if not self.has_rsample:
            raise SettingsError("This law's draws of its base have no gradients; use sample.")

    def _draw_base(self, sample_shape: Any, generator: Generator | None) -> Tensor:
        self._check_unchanged()
        base, shape = self.base, torch.Size(sample_shape)
        if base.batch_shape:
            base = base.expand(self.batch_shape)
        else:
            shape += self.batch_shape
        with nullcontext() if generator is None else private_draws(generator):
            return base.rsample(shape) if base.has_rsample else base.sample(shape)

    def __repr__(self) -> str:
        return (
            f"FlowDistribution(features={self.features}, batch_shape={tuple(self.batch_shape)}, "
            f"direction={self.direction!r})"
        )


def _divergence(p: Distribution, q: Distribution) -> Float[Tensor, "..."]:
    """Return the divergence as 10,000 draws of p estimate it, from torch's own generator."""
    return estimate_divergence(p, q)


for _pair in (
    (FlowDistribution, FlowDistribution),
    (FlowDistribution, Distribution),
    (Distribution, FlowDistribution),
):
    register_kl(*_pair)(_divergence)
