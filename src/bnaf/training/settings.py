"""What governs a fit, by name, checked when it is written down."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from bnaf._checks import between, one_of, plain, whole
from bnaf.errors import SettingsError

SCHEDULES = ("cosine", "plateau", "constant")
SCALED_PRECISIONS = ("16", "16-mixed")  # need a gradient scaler, which the loop does not run


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Settings of :func:`bnaf.fit`; the defaults are a recipe that needs no tuning.

    Every flow brings the rate that suits it; gradients are clipped only where they explode.
    :meth:`paper` and :meth:`paper_toy` are the settings of De Cao et al. (2019), with one
    departure: their average starts at zero and is not corrected, so that early validations see
    shrunken weights. Ours is corrected; ``bias_correction=False`` restores theirs.

    A run whose rate does not depend on its budget, at a plateau or constant and without a
    warm-up, can be carried on: resumed from its checkpoint with more epochs or steps, it goes on
    as if it had had them from the start.

    Args:
        epochs: Budget in passes over the rows. Several budgets may be set, and the first to be
            spent ends the run; with none, one is chosen from the size of the table.
        steps: Budget in steps of the optimiser.
        seconds: Budget in wall-clock time.
        batch: Rows per step over all processes; ``None`` chooses: all rows of a small table, else
            512; with given columns 256 of up to 10,000 rows. A stream has its own.
        learning_rate: Largest rate of the schedule; ``None`` for that of the flow,
            :attr:`bnaf.Flow.learning_rate`.
        amsgrad: Whether Adam divides by the largest second moment so far, as in the paper.
        clip: Largest norm of the gradient; ``None`` for no clipping.
        pull: Strength of a Gaussian prior that pulls the weights towards where they started; the
            loss of the mean row feels it divided by the number of rows. ``None`` for 1 in
            :meth:`bnaf.Model.fit` of up to 5,000 rows without given columns, and 0 elsewhere.
        noise: Deviation of normal noise that every step adds to rows in memory, which shrink to
            keep a deviation of 1; context included. ``None`` for a quarter of Scott's bandwidth in
            :meth:`bnaf.Model.fit` of a small table whose steps take all rows, and 0 elsewhere.
        schedule: "cosine" decays to 0 at the end of the budget, "plateau" multiplies the rate
            when the loss stalls, "constant" does neither.
        warm_up: Steps of linear growth of the rate; at most a tenth of the budget is spent on it.
        plateau_factor: What a plateau multiplies the rate by.
        plateau_patience: Evaluations without improvement that are borne.
        plateau_cooldown: Evaluations after a drop that do not count.
        plateau_floor: Smallest rate.
        plateau_threshold: Improvement that counts, in nats.
        reload_best: Whether a drop returns to the best weights, their optimiser and their average.
            The new rate is then the factor times the rate of that time, so that drops do not
            compound.
        average: Decay of the average of the weights over steps; ``None`` for no average. What is
            validated and kept is the average.
        average_share: Largest share of the steps so far that the average looks back on, so that a
            short run is not held back by its beginning; 1 leaves the decay alone.
        bias_correction: Whether the average is corrected for its start at zero.
        evaluate_every: Steps between evaluations; ``None`` for once an epoch, or what costs
            little of the time where epochs are long or the validation rows many.
        early_stopping: Evaluations of validation rows without improvement before the run ends;
            ``None`` for never. Those while the objective warms up do not count. Where the rate
            decays to the end of the budget, a tenth of it must pass without improvement too: what
            stalls at a large rate often goes on at a lower.
        max_skipped: Steps in a hundred whose loss or gradient may be infinite or undefined. They
            are skipped and counted; one more ends the run.
        seed: Seed of the order of rows and of all draws; torch's own generator is left alone.
        devices: Devices per node, or "auto"; ``None`` for one, or as many as ``torchrun`` started.
        nodes: Number of machines.
        accelerator: Kind of device, as Fabric names it; ``None`` for that of the flow.
        strategy: How processes work together, as Fabric names it: "auto", "ddp", "ddp_spawn" ...
        precision: Numbers used, as Fabric names them ("bf16-true", "64-true"); ``None`` for those
            of the flow.
        compile: Whether ``torch.compile`` compiles the objective.

    Raises:
        SettingsError: If a value is not allowed; the message says which are.

    Example:
        >>> TrainingSettings(epochs=20, batch=256).clip
        5.0
    """

    epochs: int | None = None
    steps: int | None = None
    seconds: float | None = None
    batch: int | None = None
    learning_rate: float | None = None
    amsgrad: bool = False
    clip: float | None = 5.0
    pull: float | None = None
    noise: float | None = None
    schedule: str = "cosine"
    warm_up: int = 200
    plateau_factor: float = 0.5
    plateau_patience: int = 20
    plateau_cooldown: int = 10
    plateau_floor: float = 5e-4
    plateau_threshold: float = 1e-4
    reload_best: bool = False
    average: float | None = 0.998
    average_share: float = 0.1
    bias_correction: bool = True
    evaluate_every: int | None = None
    early_stopping: int | None = 50
    max_skipped: int = 10
    seed: int = 0
    devices: int | str | None = None
    nodes: int = 1
    accelerator: str | None = None
    strategy: str = "auto"
    precision: str | None = None
    compile: bool = False

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, plain(getattr(self, field.name)))
        for name in ("epochs", "steps", "batch", "evaluate_every", "early_stopping"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name))
        for name in ("warm_up", "plateau_patience", "plateau_cooldown", "max_skipped", "seed"):
            whole(name, getattr(self, name), least=0)
        whole("nodes", self.nodes)
        for name in ("seconds", "clip", "learning_rate"):
            if getattr(self, name) is not None:
                between(name, getattr(self, name))
        for name in ("pull", "plateau_floor", "plateau_threshold"):
            if getattr(self, name) is not None:
                between(name, getattr(self, name), closed=True)
        if self.noise:
            between("noise", self.noise, 0, 1)
        between("plateau_factor", self.plateau_factor, 0, 1)
        if self.average is not None:
            between("average", self.average, 0, 1)
        if self.average_share != 1:
            between("average_share", self.average_share, 0, 1)
        self._check_choices()

    @classmethod
    def paper(
        cls, *, epochs: int | None = 1000, seconds: float | None = None, seed: int = 0
    ) -> "TrainingSettings":
        """Return the paper's settings for its tables.

        Args:
            epochs: Passes over the rows, at most.
            seconds: Wall-clock time, at most.
            seed: Seed of the order of rows.

        Example:
            >>> TrainingSettings.paper().clip
            0.1
        """
        return cls(
            epochs=epochs,
            seconds=seconds,
            batch=200,
            learning_rate=1e-2,
            amsgrad=True,
            clip=0.1,
            pull=0.0,
            noise=0.0,
            schedule="plateau",
            warm_up=0,
            reload_best=True,
            average=0.998,
            average_share=1.0,
            early_stopping=100,
            seed=seed,
        )

    @classmethod
    def paper_toy(
        cls, *, learning_rate: float = 1e-1, steps: int = 20_000, seed: int = 0
    ) -> "TrainingSettings":
        """Return the paper's settings for two-dimensional densities and energies.

        The rate follows the loss of the batches of fresh rows, step by step.

        Args:
            learning_rate: 1e-1 for densities, 1e-2 for energies.
            steps: Steps of the optimiser.
            seed: Seed of the draws.
        """
        return cls(
            steps=steps,
            batch=200,
            learning_rate=learning_rate,
            amsgrad=True,
            clip=0.1,
            pull=0.0,
            noise=0.0,
            schedule="plateau",
            warm_up=0,
            plateau_patience=2000,
            plateau_cooldown=0,
            average=None,
            evaluate_every=1,
            early_stopping=None,
            seed=seed,
        )

    @property
    def rate(self) -> float:
        """Largest learning rate of the schedule, once it is chosen."""
        assert self.learning_rate is not None
        return self.learning_rate

    @property
    def follows_budget(self) -> bool:
        """Whether the rate depends on how much of the budget is spent."""
        return self.schedule == "cosine" or self.warm_up > 0

    def as_dict(self) -> dict[str, Any]:
        """Return all settings by name, ready for JSON."""
        return dataclasses.asdict(self)

    def _check_choices(self) -> None:
        one_of("schedule", self.schedule, SCHEDULES)
        if self.reload_best and self.schedule != "plateau":
            raise SettingsError(
                "reload_best needs schedule='plateau', whose drops it follows; "
                f"got schedule={self.schedule!r}."
            )
        if str(self.precision) in SCALED_PRECISIONS:
            raise SettingsError(
                f"precision must not need a gradient scaler, got {self.precision!r}; "
                "use 'bf16-true', '32-true' or '64-true'."
            )
        if isinstance(self.devices, int):
            whole("devices", self.devices)
