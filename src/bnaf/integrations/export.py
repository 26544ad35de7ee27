"""Models as programs that run without this library: torch's .pt2, and ONNX.

A program takes rows in the units of the table, of any number, and computes as
:class:`bnaf.Model` does: in float64, but for ONNX, whose runtimes lack operators of that type.
``log_prob`` maps rows to log-densities, ``sample`` maps standard normal noise to rows; both take
given columns after them, where the model has some.
"""

import copy
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from bnaf._checks import one_of
from bnaf._files import atomic_file
from bnaf._torch import kept_validation
from bnaf.errors import BnafError, SettingsError, StorageError
from bnaf.flows.flow import Flow
from bnaf.model.model import Model
from bnaf.model.standardisation import Standardisation

FUNCTIONS = ("log_prob", "sample")
EXAMPLE_ROWS = 5  # that a program is traced with
OPSET = 20


def export_program(
    what: Flow | Model, function: str = "log_prob", *, dtype: torch.dtype = torch.float64
) -> ExportedProgram:
    """Return a function of a model as a program of torch's own.

    A density flow samples by loops that search for roots, one for each column and transform:
    its program takes long to make where there are many. Noise that has no pre-image, under a flow
    that is not onto, becomes rows that are not numbers.

    Args:
        what: A model of numbers, or a flow, taken as a model of columns in units of their own.
        function: "log_prob" or "sample".
        dtype: Floating-point type of what it takes, computes and returns.

    Raises:
        SettingsError: If the model has columns of other kinds, or torch cannot trace its flow.

    Example:
        >>> from bnaf import BNAF
        >>> program = export_program(BNAF(2, transforms=1, width=3))  # doctest: +SKIP
        >>> program.module()(torch.zeros(7, 2, dtype=torch.float64)).shape  # doctest: +SKIP
        torch.Size([7])
    """
    one_of("function", function, FUNCTIONS)
    model = what if isinstance(what, Model) else Model(what)
    module = _Program(model, function).to(dtype)
    example = [torch.zeros(EXAMPLE_ROWS, model.flow.features, dtype=dtype)]
    if model.given_columns:
        example.append(torch.zeros(EXAMPLE_ROWS, len(model.given_columns), dtype=dtype))
    batch = {0: Dim("batch")}
    try:
        with kept_validation(), torch.no_grad():
            return torch.export.export(
                module, tuple(example), dynamic_shapes=tuple([batch] * len(example)), strict=True
            )
    except BnafError:
        raise
    except Exception as error:  # torch's tracers end in many
        said = str(error).strip().partition("\n")[0]
        raise SettingsError(
            f"torch cannot trace {function} of a {type(model.flow).__name__} ({said}); export its "
            "log_prob, or a BNAF."
        ) from None


def export_file(
    what: Flow | Model, path: Path, function: str = "log_prob", *, overwrite: bool = True
) -> None:
    """Write a function of a model as a program, whole or not at all.

    Args:
        what: As of :func:`export_program`.
        path: The file: .pt2, which :func:`torch.export.load` reads, or .onnx.
        function: "log_prob" or "sample"; ONNX has the first alone.
        overwrite: Whether it may replace a file that exists.

    Raises:
        StorageError: If it cannot be written, or is to be of another format.
        SettingsError: If the model, or ONNX, cannot do it.
    """
    kind = one_of("suffix", path.suffix, (".pt2", ".onnx"))
    if kind == ".onnx" and function == "sample":
        raise SettingsError(
            "ONNX has log_prob alone: the search for roots is not among its operators. Write "
            "sample as .pt2."
        )
    dtype = torch.float32 if kind == ".onnx" else torch.float64
    program = export_program(what, function, dtype=dtype)
    try:
        with atomic_file(path, overwrite=overwrite) as file:
            if kind == ".pt2":
                torch.export.save(program, file)
            else:
                file.write(_onnx(program))
    except OSError as error:
        raise StorageError(f"Cannot write {path}: {error}.") from None


def _onnx(program: ExportedProgram) -> bytes:
    """Return a program as ONNX has it."""
    try:
        import onnxscript  # noqa: F401 (which torch needs)
    except ImportError:
        raise SettingsError(
            "ONNX needs the packages onnx and onnxscript; install bnaf[onnx]."
        ) from None
    found = torch.onnx.export(program, dynamo=True, opset_version=OPSET, verbose=False)
    assert found is not None
    content: bytes = found.model_proto.SerializeToString()
    return content


class _Program(nn.Module):
    """A function of a model in operations of torch alone."""

    def __init__(self, model: Model, function: str) -> None:
        super().__init__()
        if model.encoding.schema is not None:
            raise SettingsError(
                "Models of columns of several kinds have no program: their codes are made by this "
                "library. Export one that was fitted to numbers alone."
            )
        if function == "sample" and model.flow.settings.get("base") == "student":
            raise SettingsError(
                "Programs of samples take normal noise, and the base of this flow is not; export "
                "its log_prob."
            )
        self.flow = copy.deepcopy(model.flow).to("cpu", torch.float64).eval().requires_grad_(False)
        self.function = function
        self.columns = _MatrixStandardisation(model.standardisation)
        self.given = _MatrixStandardisation(model.given_standardisation)
        self.openings = model.encoding.openings

    def forward(self, rows: Tensor, given: Tensor | None = None) -> Tensor:
        """Return log-densities of rows, or rows of noise."""
        context = None if given is None else self.given.standardise(given, None)
        law = self.flow(context)
        if self.function == "log_prob":
            opened, log_slope = self.openings.apply(rows)
            z = self.columns.standardise(opened, context)
            log_prob: Tensor = law.log_prob(z) + self.columns.log_det + log_slope
            return log_prob
        x, _, inside = law.transform.invert(rows)
        x = x if inside is None else torch.where(inside.unsqueeze(-1), x, torch.nan)
        return self.openings.undo(self.columns.restore(x, context))


class _MatrixStandardisation(nn.Module):
    """A standardisation as products with matrices, which every runtime has."""

    location: Tensor
    forward_matrix: Tensor
    inverse_matrix: Tensor
    slopes: Tensor | None

    def __init__(self, scales: Standardisation) -> None:
        super().__init__()
        deviations = torch.diag(scales.scale)
        factor = torch.eye(scales.features, dtype=torch.float64)
        if scales.factor is not None:
            factor = scales.factor
        inverse = deviations @ factor
        self.register_buffer("location", scales.location)
        self.register_buffer("inverse_matrix", inverse.t().contiguous())
        self.register_buffer("forward_matrix", torch.linalg.inv(inverse).t().contiguous())
        slopes = None if scales.slopes is None else (deviations @ scales.slopes).t().contiguous()
        self.register_buffer("slopes", slopes)
        self.log_det = float(scales.log_det)

    def _centre(self, context: Tensor | None) -> Tensor:
        if self.slopes is None or context is None:
            return self.location
        return self.location + context @ self.slopes

    def standardise(self, rows: Tensor, context: Tensor | None) -> Tensor:
        """Return rows as the flow sees them."""
        return (rows - self._centre(context)) @ self.forward_matrix

    def restore(self, z: Tensor, context: Tensor | None) -> Tensor:
        """Return rows in the units of the table."""
        return z @ self.inverse_matrix + self._centre(context)
