"""What there is to say of a flow or a model, by name and ready for JSON."""

from typing import Any

from bnaf.flows.flow import Flow
from bnaf.flows.registry import flow_name
from bnaf.model.model import Model


def describe(what: Flow | Model) -> dict[str, Any]:
    """Return what a flow is made of and, of a model, its columns and how it was trained.

    Log-likelihoods of the training are in nats per row and in the units of the table.

    Args:
        what: A flow, or a model.

    Example:
        >>> from bnaf import BNAF
        >>> describe(Model(BNAF(2), columns=["a", "b"]))["columns"][0]
        {'name': 'a', 'type': 'float64', 'mean': 0.0, 'deviation': 1.0}
    """
    flow = what.flow if isinstance(what, Model) else what
    facts: dict[str, Any] = {
        "kind": "model" if isinstance(what, Model) else "flow",
        "flow": flow_name(flow),
        "weights": flow.parameter_count,
        "dtype": str(next(flow.parameters()).dtype).removeprefix("torch."),
        "settings": flow.settings,
    }
    if isinstance(what, Model):
        facts["columns"], facts["given_columns"] = what.encoding.describe()
        schema = what.encoding.schema
        facts["left_out"] = [] if schema is None else [vars(one) for one in schema.left_out]
        facts["training"] = _training(what)
    return facts


def _training(model: Model) -> dict[str, Any]:
    """Return the record of a fit without its history, losses turned into log-likelihoods."""
    record = {key: value for key, value in model.record.items() if key not in ("history", "shift")}
    for loss, name in (("loss", "log_likelihood"), ("valid", "valid_log_likelihood")):
        value = record.pop(loss, None)
        if isinstance(value, int | float):
            record[name] = model.log_likelihood(value, loss)
    return record
