// Large buffers that are used again: a fresh one costs a page fault for every 4 KiB.
#pragma once

#include <ATen/ATen.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

namespace bnaf {

constexpr size_t kPooledSize = 1 << 20;  // bytes from which buffers are pooled
constexpr size_t kPoolLimit = 1 << 28;   // bytes that a pool holds at most

// Free buffers by size and layout. Those of the pool of `clear` buffers come zeroed when they are
// new, and are zero later wherever users of the same layout leave them alone.
class Pool {
 public:
  using Key = std::vector<int64_t>;

  explicit Pool(bool clear) : clear_(clear) {}

  at::Tensor take(at::IntArrayRef sizes, const at::TensorOptions& like, Key key = {}) {
    const size_t size = c10::multiply_integers(sizes) * like.dtype().itemsize();
    if (size < kPooledSize) return clear_ ? at::zeros(sizes, like) : at::empty(sizes, like);
    key.push_back(static_cast<int64_t>(size));
    void* memory = find(key, size);
    void* aligned = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(memory) + 63) / 64 * 64);
    return at::from_blob(aligned, sizes, [=, this](void*) { give(key, memory, size); }, like);
  }

 private:
  const bool clear_;
  std::mutex mutex_;
  std::multimap<Key, void*> free_;
  size_t held_ = 0;

  void* find(const Key& key, size_t size) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto found = free_.find(key); found != free_.end()) {
      void* memory = found->second;
      free_.erase(found);
      held_ -= size;
      return memory;
    }
    void* memory = clear_ ? std::calloc(size + 64, 1) : std::malloc(size + 64);
    TORCH_CHECK(memory, "bnaf kernels: out of memory");
    return memory;
  }

  void give(const Key& key, void* memory, size_t size) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (held_ + size > kPoolLimit) return std::free(memory);
    free_.emplace(key, memory);
    held_ += size;
  }
};

// Never destroyed: tensors may outlive the end of the program's statics.
inline Pool& scratch_pool() {
  static Pool* pool = new Pool(false);
  return *pool;
}

// Block-triangular matrices, whose users write the same part of them each time.
inline Pool& triangle_pool() {
  static Pool* pool = new Pool(true);
  return *pool;
}

}  // namespace bnaf
