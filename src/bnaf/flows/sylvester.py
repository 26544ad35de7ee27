"""The Sylvester flow."""

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bnaf._checks import one_of, whole
from bnaf.errors import SettingsError
from bnaf.flows.amortised import make_predictor
from bnaf.flows.planar import solve_along
from bnaf.flows.transformed import TransformFlow
from bnaf.laws.transforms import (
    ComposeTransform,
    Passage,
    PermutationTransform,
    Points,
    RowTransform,
)

BASES = ("orthogonal", "householder", "triangular")
DIAGONAL = 0.999  # bound of the diagonals, so that no slope vanishes in float32

Vectors = Float[Tensor, "... vectors"]


class Basis(ABC):
    """Orthonormal columns Q, by what they do to rows."""

    @abstractmethod
    def project(self, x: Points) -> Vectors:
        """Return the coordinates Qᵀx."""

    @abstractmethod
    def lift(self, v: Vectors) -> Points:
        """Return the rows Qv."""


class Orthogonal(Basis):
    """Columns as they are."""

    def __init__(self, matrix: Float[Tensor, "*batch features vectors"]) -> None:
        self.matrix = matrix

    def project(self, x: Points) -> Vectors:
        return torch.einsum("...d,...dm->...m", x, self.matrix)

    def lift(self, v: Vectors) -> Points:
        return torch.einsum("...m,...dm->...d", v, self.matrix)


class Reflections(Basis):
    r"""Product of reflections :math:`I - 2 w w^\top / \|w\|^2`."""

    def __init__(self, vectors: Float[Tensor, "*batch reflections features"]) -> None:
        norm = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
        self.vectors = (vectors / norm.clamp(min=torch.finfo(vectors.dtype).tiny)).unbind(-2)

    def project(self, x: Points) -> Vectors:
        for vector in self.vectors:
            x = x - 2 * (x * vector).sum(-1, keepdim=True) * vector
        return x

    def lift(self, v: Vectors) -> Points:
        for vector in reversed(self.vectors):
            v = v - 2 * (v * vector).sum(-1, keepdim=True) * vector
        return v


class Identity(Basis):
    """The features themselves."""

    def project(self, x: Points) -> Vectors:
        return x

    def lift(self, v: Vectors) -> Points:
        return v


class Elements(NamedTuple):
    """Elements of one transform, for all rows or, with a batch shape, for each."""

    basis: Basis
    outer: Float[Tensor, "*batch vectors vectors"]
    inner: Float[Tensor, "*batch vectors vectors"]
    bias: Float[Tensor, "*batch vectors"]


class SylvesterTransform(RowTransform):
    r"""Push of every row within a subspace, by a triangular network.

    .. math::
        y = x + Q R \tanh(\tilde R Q^\top x + b), \qquad
        \det J = \prod_i \left( 1 + (1 - t_i^2) R_{ii} \tilde R_{ii} \right), \qquad
        t = \tanh(\tilde R Q^\top x + b)

    Both matrices are upper triangular, and the products of their diagonals above -1. The inverse
    is one equation in one unknown per vector, the last vector first.

    Args:
        features: Number of columns of a row.
        elements: Q, R, its partner and b.
    """

    def __init__(self, features: int, elements: Elements) -> None:
        super().__init__(features, elements.bias, elements.bias.shape[:-1])
        self.elements = elements
        diagonals = (part.diagonal(dim1=-2, dim2=-1) for part in (elements.outer, elements.inner))
        self.outer_diagonal, self.inner_diagonal = diagonals
        self.room = 1 + self.outer_diagonal * self.inner_diagonal

    def _log_det(self, bent: Vectors) -> Float[Tensor, "..."]:
        return torch.lerp(self.room, torch.ones_like(bent), bent.square()).log().sum(-1)

    def _push(self, bent: Vectors) -> Points:
        pushed = torch.einsum("...ij,...j->...i", self.elements.outer, bent)
        return self.elements.basis.lift(pushed)

    def _map(self, x: Points, *, ladj: bool) -> Passage:
        basis, _, inner, bias = self.elements
        bent = (torch.einsum("...ij,...j->...i", inner, basis.project(x)) + bias).tanh()
        return Passage(x + self._push(bent), self._log_det(bent))

    def _invert(self, y: Points, *, ladj: bool) -> Passage:
        inside = y.isfinite().all(-1)
        bent = self._solve(self.elements.basis.project(torch.where(inside[..., None], y, 0.0)))
        return Passage(y - self._push(bent), -self._log_det(bent), inside)

    def _solve(self, coordinates: Vectors) -> Vectors:
        """Return the tanh of each vector, given the coordinates of the image."""
        _, outer, inner, bias = self.elements
        batch = torch.broadcast_shapes(coordinates.shape[:-1], bias.shape[:-1])
        later_bent = coordinates.new_zeros(*batch, 0)
        later = coordinates.new_zeros(*batch, 0)  # coordinates of the row, those already found
        for i in reversed(range(bias.shape[-1])):
            target = coordinates[..., i] - (outer[..., i, i + 1 :] * later_bent).sum(-1)
            shift = bias[..., i] + (inner[..., i, i + 1 :] * later).sum(-1)
            along = self.inner_diagonal[..., i] * target + shift
            bent = solve_along(along, self.room[..., i].expand(along.shape)).tanh()
            found = target - self.outer_diagonal[..., i] * bent
            later_bent = torch.cat([bent.unsqueeze(-1), later_bent], -1)
            later = torch.cat([found.unsqueeze(-1), later], -1)
        return later_bent


class Sylvester(TransformFlow):
    r"""Sylvester flow (van den Berg, Hasenclever, Tomczak, Welling, 2018).

    A planar flow whose push has many directions, see :class:`SylvesterTransform`. With a context
    all of its numbers are predicted from it, by one linear map or a small network: 50,688 and
    76,800 numbers in the paper's comparison, with 64 features and 16 transforms.

    It departs from its paper in two points. Orthogonal columns are those of a QR decomposition,
    which reaches the same matrices as the paper's iteration in less time. Diagonals are bounded
    by 0.999 rather than 1, so that rounding cannot make a slope zero.

    Args:
        features: Number of columns of a row.
        context_features: Number of columns of a context; 0 for none.
        transforms: Number K of transforms.
        basis: What Q is: "orthogonal" columns, a product of "householder" reflections, or
            "triangular", the features themselves, which are reversed between transforms.
        vectors: Number of orthogonal columns; ``None`` for half of the features. The other bases
            have as many as there are features.
        reflections: Number of Householder reflections.
        direction: Which side is closed-form: "density" (log_prob) or "sampling" (rsample), which
            is the paper's.
        context_layers: Hidden layers of the context network; 0 makes it one linear map.
        context_width: Units of each of them.

    Example:
        >>> flow = Sylvester(4, transforms=2, direction="sampling")
        >>> x, log_prob = flow().rsample_and_log_prob((5,))
        >>> x.shape
        torch.Size([5, 4])
    """

    learning_rate = 0.003

    def __init__(
        self,
        features: int,
        context_features: int = 0,
        *,
        transforms: int = 16,
        basis: str = "orthogonal",
        vectors: int | None = None,
        reflections: int = 8,
        direction: str = "density",
        context_layers: int = 0,
        context_width: int = 64,
    ) -> None:
        super().__init__(features, context_features, direction)
        self.transforms = whole("transforms", transforms)
        one_of("basis", basis, BASES)
        self.basis = basis
        self.vectors = self._count_vectors(vectors)
        self.reflections = whole("reflections", reflections)
        context_layers = whole("context_layers", context_layers, least=0)
        context_width = whole("context_width", context_width)
        numbers = self._draw_numbers()
        self.numbers: nn.Parameter | None = None
        self.conditioner: nn.Sequential | None = None
        if context_features:
            widths = [context_width] * context_layers
            self.conditioner = make_predictor(numbers, context_features, widths)
        else:
            self.numbers = nn.Parameter(numbers)

    def _count_vectors(self, vectors: int | None) -> int:
        if self.basis != "orthogonal":
            return self.features
        chosen = max(1, self.features // 2) if vectors is None else whole("vectors", vectors)
        if chosen > self.features:
            raise SettingsError(
                f"vectors must be at most the number of features, {self.features}, got {chosen}."
            )
        return chosen

    @property
    def _sizes(self) -> list[int]:
        """Numbers of one transform: those of Q, of both matrices, their diagonals, and b."""
        in_basis = {
            "orthogonal": self.features * self.vectors,
            "householder": self.reflections * self.features,
            "triangular": 0,
        }[self.basis]
        return [in_basis, self.vectors**2, self.vectors, self.vectors, self.vectors]

    def _draw_numbers(self) -> Float[Tensor, "transforms numbers"]:
        """Draw all numbers of every transform, near the identity."""
        deviations = (1.0, 0.1 / math.sqrt(self.vectors), 0.1, 0.1, 1.0)
        parts = [
            deviation * torch.randn(self.transforms, size)
            for deviation, size in zip(deviations, self._sizes, strict=True)
        ]
        return torch.cat(parts, 1)

    def make_transform(
        self, context: Float[Tensor, "*batch context_features"] | None
    ) -> RowTransform:
        if self.numbers is not None:
            numbers = self.numbers
        else:
            assert self.conditioner is not None
            assert context is not None
            numbers = self.conditioner(context).to(context.dtype)  # autocast makes another of it
            numbers = numbers.unflatten(-1, (self.transforms, -1)).movedim(-2, 0)
        parts: list[RowTransform] = []
        for elements in self._elements(numbers):
            if parts and self.basis == "triangular":
                backwards = torch.arange(self.features - 1, -1, -1, device=numbers.device)
                parts.append(PermutationTransform(backwards, numbers))
            parts.append(SylvesterTransform(self.features, elements))
        return ComposeTransform(parts)

    def _elements(self, numbers: Float[Tensor, "transforms *batch numbers"]) -> list[Elements]:
        in_basis, mixing, first, second, bias = numbers.split(self._sizes, -1)
        mixing = mixing.unflatten(-1, (self.vectors, self.vectors))
        outer = mixing.triu(1) + torch.diag_embed(DIAGONAL * first.tanh())
        inner = mixing.mT.triu(1) + torch.diag_embed(DIAGONAL * second.tanh())
        parts = (self._bases(in_basis), outer.unbind(), inner.unbind(), bias.unbind())
        return [Elements(*elements) for elements in zip(*parts, strict=True)]

    def _bases(self, numbers: Float[Tensor, "transforms *batch numbers"]) -> list[Basis]:
        if self.basis == "orthogonal":
            matrices = numbers.unflatten(-1, (self.features, self.vectors))
            return [Orthogonal(matrix) for matrix in torch.linalg.qr(matrices).Q.unbind()]
        if self.basis == "householder":
            vectors = numbers.unflatten(-1, (self.reflections, self.features))
            return [Reflections(part) for part in vectors.unbind()]
        return [Identity()] * self.transforms
