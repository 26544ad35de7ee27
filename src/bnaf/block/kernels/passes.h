// Passes over whole stacks: scoring, and training forward and backward.
#pragma once

#include <memory>

#include "stack.h"

namespace bnaf {

// Lay rows out features first, and back.
template <class T>
void transpose(const T* from, int64_t rows, int64_t columns, int64_t stride, T* to,
               int64_t to_stride) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      to[column * to_stride + row] = from[row * stride + column];
    }
  }
}

// The map share * f(x) + carry * x around a network f.
template <class T>
struct Shares {
  T gate, share, carry;

  Shares(const Stack<T>& stack, int64_t transform) {
    const int64_t kind = stack.residuals[transform];
    gate = kind == kGated ? stack.gates[transform] : T(0);
    share = kind == kGated ? sigmoid(gate) : T(1);
    carry = kind == kGated ? sigmoid(-gate) : T(kind == kNormal);
  }
};

// Around a network: y in place of f(x), and its log-slopes added up, those of features `stride`
// apart each by itself, or all of a row where that is 0.
template <class T>
void add_residual(const Stack<T>& stack, int64_t transform, const Pass<T>& pass, T* out,
                  T* log_det, int64_t stride = 0) {
  const int64_t rows = pass.rows, kind = stack.residuals[transform];
  const Shares<T> around(stack, transform);
  const T gate = around.gate, share = around.share, carry = around.carry, offset = softplus(gate);
  const int64_t total = stack.features * rows;
  at::parallel_for(0, total, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      out[index] = share * pass.outputs[index] + carry * pass.inputs[index];
    }
  });
  at::parallel_for(0, rows, 64, [&](int64_t begin, int64_t end) {
    for (int64_t feature = 0; feature < stack.features; ++feature) {
      const T* slopes = pass.log_slopes + feature * rows;
      for (int64_t row = begin; row < end; ++row) {
        T slope = slopes[row];
        if (kind == kGated) slope = softplus(slope + gate) - offset;
        if (kind == kNormal) slope = softplus(slope);
        log_det[feature * stride + row] += slope;
      }
    }
  });
}

// Pull the gradients of y and of the log-determinant back through the residual.
template <class T>
T pull_back_residual(const Stack<T>& stack, int64_t transform, const Pass<T>& pass,
                     const T* grad_y, const T* grad_log_det, T* grad_f, T* grad_log, T* grad_x,
                     int64_t stride = 0) {
  const int64_t rows = pass.rows, kind = stack.residuals[transform];
  const Shares<T> around(stack, transform);
  const T gate = around.gate, share = around.share, carry = around.carry;
  double grad_gate = 0;
  for (int64_t feature = 0; feature < stack.features; ++feature) {
    double through_y = 0, through_slope = 0;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t index = feature * rows + row;
      const T open = kind == kNone ? T(1) : sigmoid(pass.log_slopes[index] + gate);
      grad_f[index] = share * grad_y[index];
      grad_x[index] = carry * grad_y[index];
      const T of_log = grad_log_det[feature * stride + row];
      grad_log[index] = of_log * open;
      through_y += grad_y[index] * (pass.outputs[index] - pass.inputs[index]);
      through_slope += of_log * (open - share);
    }
    grad_gate += through_y * share * carry + through_slope;
  }
  return static_cast<T>(grad_gate);
}

// Buffers of the units of the widest layer.
template <class T>
int64_t widest(const Stack<T>& stack) {
  int64_t units = stack.features;
  for (const auto& layer : stack.layers) units = std::max(units, layer.rows());
  return units;
}

template <class T>
Tensor buffer(int64_t size) {
  return scratch_pool().take({size}, at::TensorOptions(c10::CppTypeToScalarType<T>::value));
}

// Log-determinants and outputs where no gradient is kept: blocks of rows, each on one thread.
template <class T, Activation kind>
std::tuple<Tensor, Tensor, Tensors> score(const Stack<T>& stack, const Tensor& x) {
  const int64_t rows = x.size(0), features = stack.features;
  Tensor y = at::empty_like(x), log_det = at::zeros({rows}, x.options());
  const int64_t threads = at::get_num_threads();
  const int64_t share = (rows + threads - 1) / threads;
  const int64_t block = std::max<int64_t>(1, std::min(kScoreBlock, share));
  const int64_t blocks = (rows + block - 1) / block, units = widest(stack) * block;
  at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
    const int64_t small_size = 4 * features * block;
    Tensor scratch = buffer<T>(5 * units + small_size + stack.contexts.room(block));
    T* free = scratch.data_ptr<T>();
    T *values = free, *scaled = free + units, *small = free + 5 * units;
    for (int64_t index = begin; index < end; ++index) {
      const int64_t start = index * block, count = std::min(block, rows - start);
      Pass<T> pass{count, small, small + features * block, small + 2 * features * block, {}, {}, {}};
      for (int64_t layer = 0; layer <= stack.last(); ++layer) {
        pass.hidden.push_back(free + 2 * units);
        pass.slopes.push_back(free + (3 + layer % 2) * units);
      }
      if (!stack.contexts.scales()) pass.slopes[0] = nullptr;
      T* next = small + 3 * features * block;
      transpose(x.const_data_ptr<T>() + start * features, count, features, features, next, count);
      for (int64_t transform = 0; transform < stack.transforms; ++transform) {
        for (int64_t feature = 0; feature < features; ++feature) {
          const int64_t from = transform ? stack.source(transform, feature) : feature;
          std::copy_n(next + from * count, count, pass.inputs + feature * count);
        }
        pass.context = stack.contexts.of(transform, start, count, small + small_size);
        Network<T, kind>(stack, transform).forward(pass, values, scaled);
        add_residual(stack, transform, pass, next, log_det.data_ptr<T>() + start);
      }
      transpose(next, features, count, count, y.data_ptr<T>() + start * features, features);
    }
  });
  return {y, log_det, {}};
}

// Views of what a training pass keeps: inputs, outputs and log-slopes of every network, and of
// every layer but the last what enters its activation, of every layer but the first its slopes, and
// with scales of the first too; `first` is where those of a part of the batch begin, and `start` is
// its first row.
template <class T>
Pass<T> kept_pass(const Stack<T>& stack, const Tensors& kept, int64_t first, int64_t transform,
                  int64_t start) {
  const int64_t rows = kept[first].size(-1), last = stack.last();
  const auto part = [&](int64_t index) {
    const Tensor& tensor = kept[first + index];
    return tensor.data_ptr<T>() + transform * tensor.stride(0);
  };
  Pass<T> pass{rows, part(0), part(1), part(2), {}, {nullptr}, {}};
  pass.context = stack.contexts.of(transform, start, rows, nullptr);
  if (stack.contexts.scales()) pass.slopes[0] = part(3 + 2 * last);
  for (int64_t layer = 0; layer < last; ++layer) {
    pass.hidden.push_back(part(3 + 2 * layer));
    pass.slopes.push_back(part(4 + 2 * layer));
  }
  return pass;
}

// How many tensors a training pass keeps for each part of the batch.
template <class T>
int64_t kept_count(const Stack<T>& stack) {
  return 3 + 2 * stack.last() + stack.contexts.scales();
}

// Small networks train part by part of the batch, each thread its own, with gradients of its own;
// of large ones all threads work on one part, and the gradients exist once.
template <class T>
bool splits(const Stack<T>& stack) {
  return stack.transforms * stack.layout.weights * sizeof(T) <= kSplitBytes;
}

// How many parts a batch is trained in, so that the units of one stay in the cache.
template <class T>
int64_t train_parts(const Stack<T>& stack, int64_t rows) {
  const bool split = splits(stack);
  const int64_t most = split ? at::get_num_threads() : 1;
  const int64_t threads = std::max<int64_t>(1, std::min(most, rows / kLeastPart));
  const int64_t least = split ? kTrainBlock : 2 * kTrainBlock;  // more parts read weights more often
  return threads * std::max<int64_t>(1, rows / (threads * least));
}

// Run over parts, each thread on its own where the stack is small.
template <class T, class Body>
void over_parts(const Stack<T>& stack, int64_t parts, const Body& body) {
  if (splits(stack)) {
    at::parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) body(part, begin);
    });
  } else {
    for (int64_t part = 0; part < parts; ++part) body(part, 0);
  }
}

// Room for what a training pass keeps of a part of the batch.
template <class T>
Tensors make_kept(const Stack<T>& stack, int64_t rows) {
  Tensors kept;
  const auto keep = [&](int64_t units) {
    const at::TensorOptions like(c10::CppTypeToScalarType<T>::value);
    kept.push_back(scratch_pool().take({stack.transforms, units, rows}, like));
  };
  for (int64_t index = 0; index < 3; ++index) keep(stack.features);
  for (int64_t layer = 0; layer < stack.last(); ++layer) {
    keep(stack.layers[layer].rows());
    keep(stack.layers[layer + 1].rows());
  }
  if (stack.contexts.scales()) keep(stack.layers[0].rows());
  return kept;
}

template <class T, Activation kind>
Tensors train_forward_part(const Stack<T>& stack, const T* x, int64_t start, int64_t rows, T* y,
                           T* log_det) {
  const int64_t features = stack.features, transforms = stack.transforms;
  const Tensors kept = make_kept(stack, rows);
  const int64_t units = widest(stack) * rows;
  Tensor scratch = buffer<T>(2 * units + features * rows);
  T *values = scratch.data_ptr<T>(), *next = values + 2 * units;
  transpose(x, rows, features, features, next, rows);
  for (int64_t transform = 0; transform < transforms; ++transform) {
    const Pass<T> pass = kept_pass(stack, kept, 0, transform, start);
    for (int64_t feature = 0; feature < features; ++feature) {
      const int64_t from = transform ? stack.source(transform, feature) : feature;
      std::copy_n(next + from * rows, rows, pass.inputs + feature * rows);
    }
    Network<T, kind>(stack, transform).forward(pass, values, values + units);
    add_residual(stack, transform, pass, next, log_det);
  }
  transpose(next, features, rows, rows, y, features);
  return kept;
}

template <class T, Activation kind>
std::tuple<Tensor, Tensor, Tensors> train_forward(const Stack<T>& stack, const Tensor& x) {
  const int64_t rows = x.size(0), parts = train_parts(stack, rows);
  Tensor y = at::empty_like(x), log_det = at::zeros({rows}, x.options());
  std::vector<Tensors> found(parts);
  over_parts(stack, parts, [&](int64_t part, int64_t) {
    const int64_t start = part * rows / parts, end = (part + 1) * rows / parts;
    found[part] = train_forward_part<T, kind>(
        stack, x.const_data_ptr<T>() + start * stack.features, start, end - start,
        y.data_ptr<T>() + start * stack.features, log_det.data_ptr<T>() + start);
  });
  Tensors kept;
  for (const Tensors& part : found) kept.insert(kept.end(), part.begin(), part.end());
  return {y, log_det, kept};
}

template <class T, Activation kind>
void train_backward_part(const Stack<T>& stack, const Tensors& kept, int64_t first, int64_t start,
                         int64_t rows, const T* grad_y, const T* grad_log_det, T* grad_x,
                         T* grad_gates, StackGrads<T> grads, const Context<T>& grad_contexts) {
  const int64_t features = stack.features, units = widest(stack) * rows, small = features * rows;
  Tensor scratch = buffer<T>(7 * units + 5 * small);
  T* free = scratch.data_ptr<T>();
  T *grad_out = free + 7 * units, *grad_f = grad_out + small, *grad_log = grad_f + small;
  T *direct = grad_log + small, *through = direct + small;
  transpose(grad_y, rows, features, features, grad_out, rows);
  for (int64_t transform = stack.transforms - 1; transform >= 0; --transform) {
    const Pass<T> pass = kept_pass(stack, kept, first, transform, start);
    grads.context = stack.contexts.network(grad_contexts, transform);
    grad_gates[transform] += pull_back_residual(stack, transform, pass, grad_out, grad_log_det,
                                                grad_f, grad_log, direct);
    Network<T, kind>(stack, transform)
        .backward(pass, grad_f, grad_log, free, free + units, free + 2 * units, free + 3 * units,
                  free + 4 * units, free + 5 * units, free + 6 * units, through, grads);
    for (int64_t feature = 0; feature < features; ++feature) {
      T* to = grad_out + (transform ? stack.source(transform, feature) : feature) * rows;
      const int64_t at = feature * rows;
      for (int64_t row = 0; row < rows; ++row) to[row] = direct[at + row] + through[at + row];
    }
  }
  transpose(grad_out, features, rows, rows, grad_x, features);
}

// Gradients of a stack, as one tensor for each thread that makes some.
template <class T>
struct GradStore {
  const Layout& layout;
  Tensors tensors;

  GradStore(const Layout& layout, const at::TensorOptions& like, bool intervals = false)
      : layout(layout) {
    // zero beyond the bands, where nothing is written
    tensors.push_back(triangle_pool().take({layout.transforms, layout.weights}, like,
                                           layout.key(1, sizeof(T))));
    const int64_t others[] = {layout.rows, layout.averages, layout.features};
    for (const int64_t size : others) tensors.push_back(at::zeros({layout.transforms, size}, like));
    tensors.push_back(at::zeros({layout.transforms}, like));  // gates
    if (intervals) tensors.push_back(at::zeros({layout.transforms, layout.averages}, like));
  }
  StackGrads<T> view(bool add) const {
    return {tensors[0].data_ptr<T>(), tensors[1].data_ptr<T>(), tensors[2].data_ptr<T>(),
            tensors[3].data_ptr<T>(), add, {},
            tensors.size() > 5 ? tensors[5].data_ptr<T>() : nullptr};
  }
  void add(const GradStore& other) {
    for (size_t index = 0; index < tensors.size(); ++index) {
      T* to = tensors[index].data_ptr<T>();
      const T* from = other.tensors[index].data_ptr<T>();
      at::parallel_for(0, tensors[index].numel(), 16384, [&](int64_t begin, int64_t end) {
#pragma omp simd
        for (int64_t entry = begin; entry < end; ++entry) to[entry] += from[entry];
      });
    }
  }
};

// Gradients of contexts, in tensors like theirs.
template <class T>
struct ContextGradStore {
  Tensors tensors;

  ContextGradStore(const Stack<T>& stack, int64_t rows, const at::TensorOptions& like) {
    if (!stack.contexts) return;
    const Layout& layout = stack.layout;
    const int64_t units[] = {layout.rows, layout.rows, layout.columns};
    for (int64_t index = 0; index < (stack.contexts.scales() ? 3 : 1); ++index) {
      tensors.push_back(scratch_pool().take({layout.transforms, units[index], rows}, like));
    }
  }
  Context<T> from(int64_t row) const {
    if (tensors.empty()) return {};
    Context<T> all{tensors[0].data_ptr<T>(), nullptr, nullptr, tensors[0].size(2)};
    if (tensors.size() > 1) {
      all.row_scales = tensors[1].data_ptr<T>(), all.column_scales = tensors[2].data_ptr<T>();
    }
    return all.from(row);
  }
};

template <class T, Activation kind>
Tensors train_backward(const Stack<T>& stack, const Tensors& kept, const Tensor& grad_y,
                       const Tensor& grad_log_det) {
  const int64_t rows = grad_y.size(0), features = stack.features, each = kept_count(stack);
  const ContextGradStore<T> contexts(stack, rows, grad_y.options());
  const int64_t parts = static_cast<int64_t>(kept.size()) / each;
  Tensor grad_x = at::empty_like(grad_y);
  std::vector<std::unique_ptr<GradStore<T>>> stores(parts);  // at the first part of each thread
  over_parts(stack, parts, [&](int64_t part, int64_t first) {
    const int64_t start = part * rows / parts, end = (part + 1) * rows / parts;
    if (part == first) {
      stores[first] = std::make_unique<GradStore<T>>(stack.layout, grad_y.options());
    }
    train_backward_part<T, kind>(
        stack, kept, part * each, start, end - start,
        grad_y.const_data_ptr<T>() + start * features, grad_log_det.const_data_ptr<T>() + start,
        grad_x.data_ptr<T>() + start * features,
        stores[first]->tensors[4].template data_ptr<T>(), stores[first]->view(part > first),
        contexts.from(start));
  });
  GradStore<T>& total = *stores[0];
  for (int64_t part = 1; part < parts; ++part) {
    if (stores[part]) total.add(*stores[part]);
  }
  Tensors found{grad_x};
  found.insert(found.end(), total.tensors.begin(), total.tensors.end());
  found.insert(found.end(), contexts.tensors.begin(), contexts.tensors.end());
  return found;
}

}  // namespace bnaf
