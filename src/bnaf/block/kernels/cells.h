// Shares of cells: rows of points and intervals through a stack in one order, with the gradient.
//
// The middles pass as rows do. The distances to the ends of intervals follow on each feature's own
// path: all that they need of the features before is what enters the activations at the middles.
#pragma once

#include "mass.h"
#include "passes.h"
#include "rises.h"

namespace bnaf {

// Cells of a part of a batch, (rows, features) each.
template <class T>
struct Cells {
  const T *middle, *below, *above;
  const bool* known;

  bool wide(int64_t at) const { return known[at] && (below[at] > 0 || above[at] > 0); }
};

// Which features have points, and which have intervals.
struct Kinds {
  std::unique_ptr<bool[]> pointed, wide;

  explicit Kinds(int64_t features) : pointed(new bool[features]()), wide(new bool[features]()) {}
};

// Distances to the ends of intervals on their way through one network; a line holds those below
// the middles of the rows, and after them those above.
template <class T>
struct Spans {
  T *inputs, *outputs;     // (features, 2 rows)
  std::vector<T*> hidden;  // before each activation
};

template <class T, Activation kind>
class SpanNetwork {
 public:
  SpanNetwork(const Stack<T>& stack, int64_t transform) : stack_(stack), transform_(transform) {
    for (const Shape& layer : stack.layers) width_ = std::max(width_, layer.out_block);
  }

  void forward(const Pass<T>& pass, const Spans<T>& spans) const {
    const int64_t line = 2 * pass.rows;
    over_wide(pass, width_ * line, [&](int64_t feature, T* values) {
      const T* input = spans.inputs + feature * line;
      for (int64_t layer = 0; layer <= stack_.last(); ++layer) {
        const Shape& shape = stack_.layers[layer];
        if (layer) {
          climb<false>(layer, feature, pass, spans, values, nullptr, nullptr);
          input = values;
        }
        T* out = layer < stack_.last() ? spans.hidden[layer] : spans.outputs;
        product(false, false, shape.out_block, line, shape.in_block, block(layer, feature),
                shape.columns(), input, line, false, out + feature * shape.out_block * line, line);
      }
    });
  }

  // Given the gradients of outputs, those of inputs, of what enters the activations at the middles
  // (into `pass.arrived`), and, added, of the diagonal blocks.
  void backward(const Pass<T>& pass, const Spans<T>& spans, const T* grad_out, T* grad_in,
                T* grad_blocks) const {
    const int64_t rows = pass.rows, line = 2 * rows, size = width_ * line;
    over_wide(pass, 5 * size, [&](int64_t feature, T* free) {
      T *values = free, *slopes = free + size, *leans = free + 2 * size;
      T *upper = free + 3 * size, *lower = free + 4 * size;
      std::copy_n(grad_out + feature * line, line, upper);
      for (int64_t layer = stack_.last(); layer >= 0; --layer) {
        const Shape& shape = stack_.layers[layer];
        const int64_t in = shape.in_block, out = shape.out_block;
        const T* input = spans.inputs + feature * line;
        if (layer) {
          climb<true>(layer, feature, pass, spans, values, slopes, leans);
          input = values;
        }
        T* of_block = grad_blocks + transform_ * stack_.layout.averages + shape.average(feature * out);
        product(false, true, out, in, line, upper, line, input, line, true, of_block, in);
        T* below = layer ? lower : grad_in + feature * line;
        product(true, false, in, line, out, block(layer, feature), shape.columns(), upper, line,
                false, below, line);
        if (layer) climb_back(slopes, leans, in, rows, lower, pass.arrived[layer - 1] + feature * in * rows);
        std::swap(upper, lower);
      }
    });
  }

 private:
  const Stack<T>& stack_;
  int64_t transform_, width_ = 1;

  const T* block(int64_t layer, int64_t feature) const {
    const Shape& shape = stack_.layers[layer];
    return stack_.matrix(layer, transform_) + feature * shape.out_block * shape.columns() +
           feature * shape.in_block;
  }

  // Run over features with intervals, with so much scratch for each.
  template <class Body>
  void over_wide(const Pass<T>& pass, int64_t room, const Body& body) const {
    at::parallel_for(0, stack_.features, 1, [&](int64_t begin, int64_t end) {
      Tensor scratch;
      for (int64_t feature = begin; feature < end; ++feature) {
        if (!pass.wide[feature]) continue;
        if (!scratch.defined()) scratch = buffer<T>(room);
        body(feature, scratch.template data_ptr<T>());
      }
    });
  }

  // What enters a layer: how far the activations below it move.
  template <bool all>
  void climb(int64_t layer, int64_t feature, const Pass<T>& pass, const Spans<T>& spans, T* values,
             T* slopes, T* leans) const {
    const Climb<T, kind> activation{stack_.leak};
    const int64_t rows = pass.rows, line = 2 * rows, width = stack_.layers[layer].in_block;
    for (int64_t unit = 0; unit < width; ++unit) {
      const int64_t at = feature * width + unit;
      activation.template line<all>(pass.hidden[layer - 1] + at * rows,
                                    spans.hidden[layer - 1] + at * line, rows, values + unit * line,
                                    all ? slopes + unit * line : nullptr,
                                    all ? leans + unit * line : nullptr);
    }
  }

  // Gradients of what enters activations, middles apart from widths, which take their place.
  static void climb_back(const T* slopes, const T* leans, int64_t units, int64_t rows, T* grad,
                         T* of_middle) {
    for (int64_t unit = 0; unit < units; ++unit) {
      const int64_t line = 2 * rows * unit;
      const T *slope = slopes + line, *lean = leans + line;
      T *of_width = grad + line, *to = of_middle + unit * rows;
#pragma omp simd
      for (int64_t row = 0; row < rows; ++row) {
        to[row] = -(of_width[row] * lean[row] + of_width[rows + row] * lean[rows + row]);
        of_width[row] *= slope[row], of_width[rows + row] *= slope[rows + row];
      }
    }
  }
};

// What a pass over cells keeps beyond that of rows: the spans of every network, and the derivatives
// of the shares: in z, in the log-slopes and in the distances below and above, (4, features, rows).
template <class T>
int64_t kept_cells(const Stack<T>& stack) {
  return kept_count(stack) + 3 + stack.last();
}

template <class T>
Spans<T> kept_spans(const Stack<T>& stack, const Tensors& kept, int64_t first, int64_t transform) {
  const auto part = [&](int64_t index) {
    const Tensor& tensor = kept[first + kept_count(stack) + index];
    return tensor.data_ptr<T>() + transform * tensor.stride(0);
  };
  Spans<T> spans{part(0), part(1), {}};
  for (int64_t layer = 0; layer < stack.last(); ++layer) spans.hidden.push_back(part(2 + layer));
  return spans;
}

template <class T>
Tensors make_kept_cells(const Stack<T>& stack, int64_t rows) {
  Tensors kept = make_kept(stack, rows);
  const at::TensorOptions like(c10::CppTypeToScalarType<T>::value);
  const auto keep = [&](int64_t units) {
    kept.push_back(scratch_pool().take({stack.transforms, units, 2 * rows}, like));
  };
  keep(stack.features), keep(stack.features);
  for (int64_t layer = 0; layer < stack.last(); ++layer) keep(stack.layers[layer].rows());
  kept.push_back(scratch_pool().take({4, stack.features, rows}, like));
  return kept;
}

// Lay the distances of a part out features first; zero where there is none or no end.
template <class T>
Kinds lay_out_spans(const Cells<T>& cells, int64_t rows, int64_t features, T* spans) {
  Kinds kinds(features);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t feature = 0; feature < features; ++feature) {
      const int64_t at = row * features + feature;
      const bool wide = cells.wide(at);
      T* line = spans + feature * 2 * rows;
      line[row] = wide && !std::isinf(cells.below[at]) ? cells.below[at] : T(0);
      line[rows + row] = wide && !std::isinf(cells.above[at]) ? cells.above[at] : T(0);
      if (wide) kinds.wide[feature] = true;
      if (cells.known[at] && !wide) kinds.pointed[feature] = true;
    }
  }
  return kinds;
}

// Shares of a part and their derivatives, given where the middles and the ends have come to.
template <class T>
void find_shares(const Cells<T>& cells, int64_t rows, int64_t features, const T* z,
                 const T* log_slopes, const T* spans, T* shares, T* by) {
  const int64_t size = features * rows;
  for (int64_t feature = 0; feature < features; ++feature) {
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t at = row * features + feature, index = feature * rows + row;
      Mass<T> mass{0, 0, 0, 0};
      const bool wide = cells.wide(at);
      if (wide) {
        const T* line = spans + feature * 2 * rows;
        mass = log_mass(z[index], std::isinf(cells.below[at]) ? cells.below[at] : line[row],
                        std::isinf(cells.above[at]) ? cells.above[at] : line[rows + row]);
      } else if (cells.known[at]) {
        mass.value = -z[index] * z[index] / 2 - T(kLogRootTwoPi) + log_slopes[index];
        mass.by_z = -z[index];
      }
      shares[at] = mass.value;
      by[index] = mass.by_z, by[size + index] = T(cells.known[at] && !wide);
      by[2 * size + index] = mass.by_below, by[3 * size + index] = mass.by_above;
    }
  }
}

template <class T, Activation kind>
Tensors shares_forward_part(const Stack<T>& stack, const Cells<T>& cells, int64_t start,
                            int64_t rows, T* shares) {
  const int64_t features = stack.features, units = widest(stack) * rows, size = features * rows;
  const Tensors kept = make_kept_cells(stack, rows);
  Tensor scratch = buffer<T>(2 * units + 4 * size);
  T *values = scratch.data_ptr<T>(), *next = values + 2 * units, *log_slopes = next + size;
  T* widths = log_slopes + size;
  transpose(cells.middle, rows, features, features, next, rows);
  std::fill_n(log_slopes, size, T(0));
  const Kinds kinds = lay_out_spans(cells, rows, features, widths);
  for (int64_t transform = 0; transform < stack.transforms; ++transform) {
    Pass<T> pass = kept_pass(stack, kept, 0, transform, start);
    pass.pointed = kinds.pointed.get(), pass.wide = kinds.wide.get();
    std::copy_n(next, size, pass.inputs);
    Network<T, kind>(stack, transform).forward(pass, values, values + units);
    const Spans<T> spans = kept_spans(stack, kept, 0, transform);
    std::copy_n(widths, 2 * size, spans.inputs);
    SpanNetwork<T, kind>(stack, transform).forward(pass, spans);
    const Shares<T> around(stack, transform);
    for (int64_t feature = 0; feature < features; ++feature) {
      if (!kinds.wide[feature]) continue;
#pragma omp simd
      for (int64_t at = feature * 2 * rows; at < (feature + 1) * 2 * rows; ++at) {
        widths[at] = around.share * spans.outputs[at] + around.carry * spans.inputs[at];
      }
    }
    add_residual(stack, transform, pass, next, log_slopes, rows);
  }
  find_shares(cells, rows, features, next, log_slopes, widths, shares,
              kept.back().template data_ptr<T>());
  return kept;
}

// The log-share of every cell, and what the gradient needs (nothing without `keep`).
template <class T, Activation kind>
std::tuple<Tensor, Tensors> shares_forward(const Stack<T>& stack, const Tensor& middle,
                                           const Tensor& below, const Tensor& above,
                                           const Tensor& known, bool keep) {
  const int64_t rows = middle.size(0), features = stack.features;
  const int64_t parts =
      keep ? train_parts(stack, rows) : (rows + kScoreBlock - 1) / kScoreBlock;
  Tensor shares = at::empty_like(middle);
  std::vector<Tensors> found(parts);
  over_parts(stack, parts, [&](int64_t part, int64_t) {
    const int64_t start = part * rows / parts, end = (part + 1) * rows / parts;
    const int64_t at = start * features;
    const Cells<T> cells{middle.const_data_ptr<T>() + at, below.const_data_ptr<T>() + at,
                         above.const_data_ptr<T>() + at, known.const_data_ptr<bool>() + at};
    Tensors kept = shares_forward_part<T, kind>(stack, cells, start, end - start,
                                                shares.data_ptr<T>() + at);
    if (keep) found[part] = std::move(kept);
  });
  Tensors kept;
  for (const Tensors& part : found) kept.insert(kept.end(), part.begin(), part.end());
  return {shares, kept};
}

// Gradients of z, log-slopes and distances of a part, given those of its shares.
template <class T>
Kinds pull_back_shares(const T* by, const T* grad, int64_t rows, int64_t features, T* of_z,
                       T* of_log, T* of_widths) {
  const int64_t size = features * rows;
  Kinds kinds(features);
  for (int64_t feature = 0; feature < features; ++feature) {
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t index = feature * rows + row, line = feature * 2 * rows + row;
      const T arrived = grad[row * features + feature];
      const T *slope = by + size + index, *below = slope + size, *above = below + size;
      of_z[index] = arrived * by[index], of_log[index] = arrived * *slope;
      of_widths[line] = arrived * *below, of_widths[line + rows] = arrived * *above;
      if (*slope != 0) kinds.pointed[feature] = true;
      if (*below != 0 || *above != 0) kinds.wide[feature] = true;
    }
  }
  return kinds;
}

// Pull the gradients of distances back through the residual; returns that of the gate.
template <class T>
T pull_back_span_residual(const Stack<T>& stack, int64_t transform, const Spans<T>& spans,
                          const bool* wide, int64_t line, const T* grad, T* grad_f) {
  const Shares<T> around(stack, transform);
  double through = 0;
  for (int64_t feature = 0; feature < stack.features; ++feature) {
    if (!wide[feature]) continue;
    for (int64_t at = feature * line; at < (feature + 1) * line; ++at) {
      grad_f[at] = around.share * grad[at];
      through += grad[at] * (spans.outputs[at] - spans.inputs[at]);
    }
  }
  return static_cast<T>(through * around.share * around.carry);
}

// Gradients of the cells of a part.
template <class T>
struct CellGrads {
  T *middle, *below, *above;
};

template <class T, Activation kind>
void shares_backward_part(const Stack<T>& stack, const Tensors& kept, int64_t first, int64_t start,
                          int64_t rows, const T* grad, const CellGrads<T>& found, T* grad_gates,
                          StackGrads<T> grads, const Context<T>& grad_contexts) {
  const int64_t features = stack.features, units = widest(stack) * rows, size = features * rows;
  const int64_t hidden = stack.last() * units, line = 2 * rows;
  Tensor scratch = buffer<T>(7 * units + hidden + 12 * size);
  T *free = scratch.data_ptr<T>(), *small = free + 7 * units + hidden;
  T *grad_out = small, *of_log = small + size, *grad_f = small + 2 * size;
  T *grad_log = small + 3 * size, *direct = small + 4 * size, *through = small + 5 * size;
  T *widths = small + 6 * size, *span_f = small + 8 * size, *span_in = small + 10 * size;
  const T* by = kept[first + kept_cells(stack) - 1].template const_data_ptr<T>();
  const Kinds kinds = pull_back_shares(by, grad, rows, features, grad_out, of_log, widths);
  for (int64_t transform = stack.transforms - 1; transform >= 0; --transform) {
    Pass<T> pass = kept_pass(stack, kept, first, transform, start);
    pass.pointed = kinds.pointed.get(), pass.wide = kinds.wide.get();
    for (int64_t layer = 0; layer < stack.last(); ++layer) {
      pass.arrived.push_back(free + 7 * units + layer * units);
    }
    grads.context = stack.contexts.network(grad_contexts, transform);
    grad_gates[transform] += pull_back_residual(stack, transform, pass, grad_out, of_log, grad_f,
                                                grad_log, direct, rows);
    const Spans<T> spans = kept_spans(stack, kept, first, transform);
    grad_gates[transform] += pull_back_span_residual(stack, transform, spans, pass.wide, line,
                                                     widths, span_f);
    SpanNetwork<T, kind>(stack, transform).backward(pass, spans, span_f, span_in, grads.blocks);
    Network<T, kind>(stack, transform)
        .backward(pass, grad_f, grad_log, free, free + units, free + 2 * units, free + 3 * units,
                  free + 4 * units, free + 5 * units, free + 6 * units, through, grads);
    for (int64_t at = 0; at < size; ++at) grad_out[at] = direct[at] + through[at];
    const T carry = Shares<T>(stack, transform).carry;
    for (int64_t feature = 0; feature < features; ++feature) {
      if (!kinds.wide[feature]) continue;
      for (int64_t at = feature * line; at < (feature + 1) * line; ++at) {
        widths[at] = carry * widths[at] + span_in[at];
      }
    }
  }
  transpose(grad_out, features, rows, rows, found.middle, features);
  transpose(widths, features, rows, line, found.below, features);
  transpose(widths + rows, features, rows, line, found.above, features);
}

// Add what intervals found of the diagonal blocks to the gradients of the matrices.
template <class T>
void add_blocks(const Layout& layout, const T* blocks, T* matrices) {
  for (int64_t transform = 0; transform < layout.transforms; ++transform) {
    for (const Shape& shape : layout.layers) {
      for (int64_t row = 0; row < shape.rows(); ++row) {
        const T* from = blocks + transform * layout.averages + shape.average(row);
        T* to = matrices + transform * layout.weights + shape.weight(row) + shape.below(row);
        for (int64_t column = 0; column < shape.in_block; ++column) to[column] += from[column];
      }
    }
  }
}

// Gradients of middles, distances below and above, weights, gates and contexts.
template <class T, Activation kind>
Tensors shares_backward(const Stack<T>& stack, const Tensors& kept, const Tensor& grad) {
  const int64_t rows = grad.size(0), features = stack.features, each = kept_cells(stack);
  const ContextGradStore<T> contexts(stack, rows, grad.options());
  const int64_t parts = static_cast<int64_t>(kept.size()) / each;
  Tensors found{at::empty_like(grad), at::empty_like(grad), at::empty_like(grad)};
  std::vector<std::unique_ptr<GradStore<T>>> stores(parts);  // at the first part of each thread
  over_parts(stack, parts, [&](int64_t part, int64_t first) {
    const int64_t start = part * rows / parts, end = (part + 1) * rows / parts;
    const int64_t at = start * features;
    if (part == first) {
      stores[first] = std::make_unique<GradStore<T>>(stack.layout, grad.options(), true);
    }
    const CellGrads<T> cells{found[0].data_ptr<T>() + at, found[1].data_ptr<T>() + at,
                             found[2].data_ptr<T>() + at};
    shares_backward_part<T, kind>(stack, kept, part * each, start, end - start,
                                  grad.const_data_ptr<T>() + at, cells,
                                  stores[first]->tensors[4].template data_ptr<T>(),
                                  stores[first]->view(part > first), contexts.from(start));
  });
  GradStore<T>& total = *stores[0];
  for (int64_t part = 1; part < parts; ++part) {
    if (stores[part]) total.add(*stores[part]);
  }
  add_blocks(stack.layout, total.tensors[5].template const_data_ptr<T>(),
             total.tensors[0].template data_ptr<T>());
  found.insert(found.end(), total.tensors.begin(), total.tensors.begin() + 5);
  found.insert(found.end(), contexts.tensors.begin(), contexts.tensors.end());
  return found;
}

}  // namespace bnaf
