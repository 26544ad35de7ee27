"""What a report says in words."""

import math
from typing import Any

from bnaf._text import plain_name, typeset
from bnaf.model.description import describe
from bnaf.report.assessment import Assessment, Standing
from bnaf.report.parts import ALL, NEW, TEST, TRAIN, VALID

LONGEST = 200
ERRORS = 2.0  # a difference counts from so many standard errors on

JUDGED = {
    NEW: "They were given to the report apart, and the model was not fitted to them.",
    TEST: "They were set aside before the fit, which never saw them.",
    ALL: "Whether the model was fitted to some of them is not known; if so, it flatters them.",
    VALID: (
        "The fit chose its best weights by them, which flatters the model a little. Set rows "
        "aside with bnaf fit --test 0.2 for a clean judgement."
    ),
    TRAIN: (
        "The model was fitted to these very rows, and flatters them. Set rows aside with "
        "bnaf fit --test 0.2, or give others with bnaf report --test FILE, for a fair judgement."
    ),
}


def clean(text: object) -> str:
    r"""Return text without control characters, and not endless.

    Example:
        >>> clean("a\x00b"), len(clean("a" * 999))
        ('a�b', 200)
    """
    return plain_name(str(text), LONGEST)


def say_fit(training: dict[str, Any]) -> str:
    """Say how the fit went."""
    if not {"steps", "seconds", "reason"} <= training.keys():
        return "The file holds no record of its training."
    reasons = {
        "budget": "ended when its budget was spent",
        "early stopping": "ended when validation rows no longer gained",
        "interrupted": "was interrupted, with the best weights kept",
        "failed": "ended because too many steps had no finite loss, with the best weights kept",
    }
    reason = reasons.get(training["reason"], f"ended by {clean(training['reason'])}")
    return f"The fit took {training['steps']:,} steps in {training['seconds']:.1f} s and {reason}."


def say_rows(assessment: Assessment) -> str:
    """Say which rows the model was fitted to, and which the report is about."""
    counts = [f"{len(part.rows):,} {part.name} rows" for part in assessment.parts.parts]
    if assessment.parts.same_table:
        fitted = f"This is the table the model was fitted to: {_listed(counts)}."
        return f"{fitted}{_elsewhere(assessment)}"
    known = (
        "The model file does not say which rows it was fitted to"
        if assessment.parts.same_table is None
        else "The model was fitted to another table, or to this one read with other options"
    )
    return (
        f"{known}, so {_listed(counts)} are taken together, and what it is held against is fitted "
        "to the rows of this table, which favours that."
    )


def _elsewhere(assessment: Assessment) -> str:
    """Say how likely validation rows were that came from another file, if there were any."""
    valid = describe(assessment.model)["training"].get("valid_log_likelihood")
    if valid is None or any(part.name == VALID for part in assessment.parts.parts):
        return ""
    return (
        " Validation rows came from elsewhere; the fit left them at a log-likelihood of "
        f"{typeset(valid, 3)} nats per row."
    )


def say_judged(part: str) -> str:
    """Say what the rows that a model is judged by were to its fit."""
    return JUDGED[part]


def say_gain(standing: Standing, baseline: str = "a Gaussian") -> str:
    """Say whether a model is better than what it is held against."""
    if standing.gain is None:
        return "There is no Gaussian to compare with: its covariance could not be computed."
    gain, error = standing.gain
    if math.isnan(error) or math.isinf(gain) or math.isnan(gain):
        return f"These rows are too few, or too unlikely, to compare with {baseline}."
    if gain > ERRORS * error:
        return (
            f"Clearly better than {baseline}: a row is {_times(gain)} as likely under the model "
            "(geometric mean)."
        )
    if gain < -ERRORS * error:
        return (
            f"Worse than {baseline}: there a row is {_times(-gain)} as likely. The model "
            "has too few rows, or was fitted for too short or too long a time."
        )
    return f"Not told apart from {baseline} by these rows: the gain is within two standard errors."


def say_memory(assessment: Assessment) -> str:
    """Say whether the model knows its training rows better than others; empty if not known."""
    judged = assessment.standing
    train = next((entry for entry in assessment.standings if entry.part == TRAIN), None)
    if train is None or train is judged:
        return ""
    gap = train.model[0] - judged.model[0]
    error = math.hypot(train.model[1], judged.model[1])
    if gap > ERRORS * error:
        return (
            f"Training rows are {typeset(gap, 2)} nats more likely than {judged.part} rows: the "
            "model has learned some of them by heart."
        )
    return f"It holds as well for {judged.part} rows as for those it was fitted to."


def _times(nats: float) -> str:
    times = math.exp(min(nats, 700.0))
    if times >= 1e4:
        return f"e^{nats:.1f} times"
    return f"{times:.1f} times" if times < 10 else f"{times:,.0f} times"


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
