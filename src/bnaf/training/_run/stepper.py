"""One step of training, without waiting for the device."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from bnaf._checks import between
from bnaf._random import Dropout, library_draws, mix_seed, private_draws
from bnaf._torch import obeys_on_device, total_norm
from bnaf.training._run.averaging import WeightAverage
from bnaf.training._run.devices import sum_over
from bnaf.training.batches import Batch, BatchSource
from bnaf.training.objectives import Objective
from bnaf.training.prior import Prior
from bnaf.training.settings import TrainingSettings

FOLD = 10  # steps whose losses are summed at once
EPSILON = 1e-6  # added to the norm that is clipped, as torch does


class Stepper:
    """Objective, optimiser and average of a run, and the sums it reports from.

    A step whose loss or gradient is not finite changes no weight, and is counted: the verdict
    stays on the device, and Adam obeys it there. Other optimisers have to wait for it. Gradients
    are clipped after processes have shared them, so every one of them comes to the same verdict
    and the same weights.

    Args:
        fabric: Where the run takes place.
        objective: What is minimised.
        settings: Those of the run.
        worth: What the rows of the table are worth, where that is known; without, the weights are
            not pulled anywhere.
        optimiser: From parameters to an optimiser; Adam by default.
        rates: Parameters that want another rate of Adam: by a name, its share and which.
    """

    def __init__(
        self,
        fabric: Fabric,
        objective: Objective,
        settings: TrainingSettings,
        worth: float | None = None,
        optimiser: Callable[[Any], Optimizer] | None = None,
        rates: Mapping[str, tuple[float, list[nn.Parameter]]] | None = None,
    ) -> None:
        self.fabric, self.objective, self.settings = fabric, objective, settings
        chosen = [weight for weight in objective.parameters() if weight.requires_grad]
        if optimiser is None:
            groups = _group(chosen, settings.rate, rates or {})
            self.optimiser: Optimizer = Adam(groups, amsgrad=settings.amsgrad, fused=True)
        else:
            self.optimiser = optimiser(chosen)
        largest = [group["lr"] for group in self.optimiser.param_groups]
        between("The rate of the optimiser", largest[0])
        self._proportions = [rate / largest[0] for rate in largest]
        names = [group.get("of", str(i)) for i, group in enumerate(self.optimiser.param_groups)]
        self.rates = dict(zip(names, largest, strict=True))  # by what they are the rates of
        self._obedient = obeys_on_device(self.optimiser)
        drops = [part for part in objective.modules() if isinstance(part, nn.Dropout)]
        self._draws = objective.draws or bool(drops)
        ours = not objective.draws and all(isinstance(part, Dropout) for part in drops)
        self._seeded = library_draws if ours or settings.compile else private_draws
        module: Any = _Unpacked(objective, shared=fabric.world_size > 1)
        module = torch.compile(module) if settings.compile else module
        wrapped, self._shared_optimiser = fabric.setup(module, self.optimiser)
        # one process of full precision needs none of Fabric's wrappers, which cost time
        self._alone = fabric.world_size == 1 and settings.precision is None
        self._module = module if self._alone else wrapped
        self.parameters = [weight for weight in objective.parameters() if weight.requires_grad]
        self.average: WeightAverage | None = None
        if settings.average is not None:
            self.average = WeightAverage(
                self.parameters,
                decay=settings.average,
                share=settings.average_share,
                bias_correction=settings.bias_correction,
            )
        self.prior: Prior | None = None
        if settings.pull and worth is not None:
            self.prior = Prior(objective, self.parameters, settings.pull / worth)
        exact = torch.float32 if fabric.device.type == "mps" else torch.float64
        self.sums = torch.zeros(3, dtype=exact, device=fabric.device)  # loss, weight, skipped
        self.pending: list[tuple[Tensor, float | Tensor, Tensor]] = []

    def take(self, batch: Batch, rate: float, step: int) -> None:
        """Take one step.

        Args:
            batch: Rows of this process.
            rate: Learning rate.
            step: Number of the step, from which private draws follow.
        """
        for group, proportion in zip(self.optimiser.param_groups, self._proportions, strict=True):
            group["lr"] = rate * proportion
        for weight in self.parameters:  # as zero_grad does, without its record for profilers
            weight.grad = None
        with self._private_draws(step + 1):
            loss = self._module(_Parcel(batch))
        total = batch.weight
        if self._alone:
            loss.backward()
            self._update(loss.detach(), total)
        else:
            loss, total = self._share(loss, total, batch.total)
            self.fabric.backward(loss)
            self._update(sum_over(self.fabric, loss.detach()) / self.fabric.world_size, total)
        if (step + 1) % FOLD == 0:
            self._fold()

    def _share(
        self, loss: Tensor, mine: float | Tensor, total: float | Tensor | None
    ) -> tuple[Tensor, float | Tensor]:
        """Weigh this process's loss so that the mean over processes is that of the whole batch."""
        if total is None:
            known = torch.as_tensor(mine, dtype=self.sums.dtype, device=self.fabric.device)
            total = sum_over(self.fabric, known.clone())
        return loss * (mine * self.fabric.world_size / total), total

    def _update(self, loss: Tensor, total: float | Tensor) -> None:
        if self.prior is not None:
            self.prior.add_gradient()
        gradients = [weight.grad for weight in self.parameters if weight.grad is not None]
        norm, clip, optimiser = total_norm(gradients), self.settings.clip, self.optimiser
        both = norm + loss
        bad = (both - both).ne(0).float()  # 1 where one of them is infinite or undefined, else 0
        if self._obedient:
            optimiser.found_inf = bad  # type: ignore[attr-defined]
        if clip is not None and self._obedient and norm.dtype == torch.float32:
            scale = ((norm + EPSILON) / clip).clamp(min=1)  # a pass over the gradients less
            optimiser.grad_scale = scale  # type: ignore[attr-defined]
        elif clip is not None:
            nn.utils.clip_grads_with_norm_(self.parameters, clip, norm)
        if self._obedient or not bad:
            (optimiser if self._alone else self._shared_optimiser).step()
        if self.average is not None:
            self.average.update()
        self.pending.append((loss, total, bad))

    def read_loss(self, *, otherwise: float) -> float:
        """Return the mean loss since the last reset, or something else where no step counted."""
        loss, weight, _ = (self.sums + self._sum_pending()).tolist()
        return loss / weight if weight else otherwise

    @property
    def skipped(self) -> int:
        """Number of steps that were skipped."""
        return int((self.sums + self._sum_pending())[2])

    def close_loss(self, *, otherwise: float) -> float:
        """Return the same as :meth:`read_loss`, and begin a new mean."""
        self._fold()
        loss = self.read_loss(otherwise=otherwise)
        self.sums[:2] = 0
        return loss

    @property
    def entries(self) -> Tensor:
        """Loss, weight and verdict of each step that is not in the sums yet."""
        if not self.pending:
            return self.sums.new_zeros(0, 3)
        columns = [map(torch.as_tensor, column) for column in zip(*self.pending, strict=True)]
        return torch.stack([torch.stack([*column]).to(self.sums) for column in columns], 1)

    @entries.setter
    def entries(self, entries: Tensor) -> None:
        self.pending = [(loss, total, bad) for loss, total, bad in entries.to(self.sums)]

    @torch.no_grad()
    def validate(self, valid: BatchSource) -> float:
        """Return the mean loss of the averaged weights on the rows of all processes."""
        fabric, like = self.fabric, self.parameters[0]
        batches = valid.all_batches(rank=fabric.global_rank, world_size=fabric.world_size)
        sums = torch.zeros_like(self.sums[:2])
        training = self.objective.training
        self.objective.eval()
        with fabric.autocast(), self._private_draws(0), self.averaged():
            for batch in (item.to(like) for item in batches):
                if len(batch.rows):
                    loss = self.objective(batch)
                    weight = torch.as_tensor(batch.weight).to(sums)
                    sums += torch.stack([loss.to(sums) * weight, weight])
        self.objective.train(training)
        total, weight = sum_over(fabric, sums).tolist()
        return float(total / weight)

    def averaged(self) -> AbstractContextManager[None]:
        """Return a context in which the weights are their average, where there is one."""
        return nullcontext() if self.average is None else self.average.applied()

    def _private_draws(self, step: int) -> AbstractContextManager[None]:
        if not self._draws:
            return nullcontext()
        seed = mix_seed(self.settings.seed, step, self.fabric.global_rank)
        return self._seeded(seed)

    def _fold(self) -> None:
        """Add what is pending to the sums, at steps that do not depend on who looks on."""
        self.sums += self._sum_pending()
        self.pending = []

    def _sum_pending(self) -> Tensor:
        if not self.pending:
            return torch.zeros_like(self.sums)
        losses, totals, bad = self.entries.unbind(1)
        weights = totals * (1 - bad)
        losses = torch.where(bad > 0, 0.0, losses)
        return torch.stack([(losses * weights).sum(), weights.sum(), bad.sum()])


def _group(
    parameters: Sequence[nn.Parameter],
    rate: float,
    rates: Mapping[str, tuple[float, list[nn.Parameter]]],
) -> list[dict[str, Any]]:
    """Return parameters by the rates they want, those of the plain rate first."""
    others = {weight for _, weights in rates.values() for weight in weights}
    plain = [weight for weight in parameters if weight not in others]
    groups: list[dict[str, Any]] = [{"params": plain, "lr": rate, "of": "flow"}]
    for name, (share, weights) in rates.items():
        trained = [weight for weight in weights if weight.requires_grad]
        groups.append({"params": trained, "lr": rate * share, "of": name})
    return [group for group in groups if group["params"]]


class _Parcel:
    """Batch that Fabric does not look into: mixed precision would round its rows."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch


class _Unpacked(nn.Module):
    """Objective that takes a parcel.

    Args:
        objective: The objective.
        shared: Whether others have rows of the batch: the loss of none is then 0, not undefined.
    """

    def __init__(self, objective: Objective, *, shared: bool) -> None:
        super().__init__()
        self.objective, self.shared = objective, shared

    def forward(self, parcel: _Parcel) -> Tensor:
        if self.shared and not len(parcel.batch.rows):
            return 0 * torch.cat([weight.reshape(-1) for weight in self.parameters()]).sum()
        loss: Tensor = self.objective(parcel.batch)
        return loss
