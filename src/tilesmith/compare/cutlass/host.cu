/// One kernel of CUTLASS behind a C interface: a product is prepared once, and its kernels are queued at each call.
///
/// The kernel's own definition, as CUTLASS's generator writes it, comes before this file (-include), with
/// TILESMITH_KERNEL as its name. Results are column-major, as those of CUTLASS's library: the caller exchanges the
/// operands for a row-major one. Every function returns 0, or the number of CUTLASS's status, or that of a CUDA error
/// plus 1000.

#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

#include "cutlass/gemm/device/gemm_universal_adapter.h"

namespace {

using Gemm = cutlass::gemm::device::GemmUniversalAdapter<TILESMITH_KERNEL>;

struct Problem {
  int64_t m, n, k, batch, lda, ldb, ldc, stride_a, stride_b, stride_c;
  const void *a, *b;
  void *c;
  int64_t splits;
  double alpha;
};

struct Prepared {
  Gemm gemm;
  Problem problem;
  void *workspace; // nullptr where there is none
};

template <class Scheduler, class = void> struct HasSplits : std::false_type {};
template <class Scheduler>
struct HasSplits<Scheduler, std::void_t<decltype(std::declval<Scheduler>().splits)>> : std::true_type {};

#if TILESMITH_CUTLASS3
// Strides are tuples, in which the unit one is a type.
template <class Stride> Stride stride_of(int64_t lead, int64_t batch) {
  Stride found{};
  if constexpr (cute::is_static<cute::remove_cvref_t<decltype(cute::get<0>(found))>>::value) {
    cute::get<1>(found) = lead;
  } else {
    cute::get<0>(found) = lead;
  }
  cute::get<2>(found) = batch;
  return found;
}

template <class Kernel> typename Gemm::Arguments arguments_of(const Problem &p) {
  using A = typename Kernel::CollectiveMainloop::ElementA;
  using B = typename Kernel::CollectiveMainloop::ElementB;
  typename cutlass::gemm::device::GemmUniversalAdapter<Kernel>::Arguments found{};
  found.mode = cutlass::gemm::GemmUniversalMode::kGemm;
  found.problem_shape = {int(p.m), int(p.n), int(p.k), int(p.batch)};
  found.mainloop.ptr_A = static_cast<const A *>(p.a);
  found.mainloop.ptr_B = static_cast<const B *>(p.b);
  found.mainloop.dA = stride_of<typename Kernel::StrideA>(p.lda, p.stride_a);
  found.mainloop.dB = stride_of<typename Kernel::StrideB>(p.ldb, p.stride_b);
  found.epilogue.thread.alpha = float(p.alpha);
  found.epilogue.thread.beta = 0;
  found.epilogue.ptr_C = static_cast<const typename Kernel::ElementC *>(p.c); // for its map: it is never read
  found.epilogue.ptr_D = static_cast<typename Kernel::ElementD *>(p.c);
  found.epilogue.dC = stride_of<typename Kernel::StrideC>(p.ldc, p.stride_c);
  found.epilogue.dD = stride_of<typename Kernel::StrideD>(p.ldc, p.stride_c);
  cudaGetDevice(&found.hw_info.device_id);
  found.hw_info.sm_count = cutlass::KernelHardwareInfo::query_device_multiprocessor_count(found.hw_info.device_id);
  if constexpr (HasSplits<decltype(found.scheduler)>::value) {
    if (p.splits > 1) found.scheduler.splits = int(p.splits);
  }
  return found;
}
#else
template <class Kernel> typename Gemm::Arguments arguments_of(const Problem &p) {
  using Mode = cutlass::gemm::GemmUniversalMode;
  const int count = int(p.batch > 1 ? p.batch : p.splits);
  return {
      p.batch > 1 ? Mode::kBatched : Mode::kGemm,
      {int(p.m), int(p.n), int(p.k)},
      count,
      {typename Gemm::EpilogueOutputOp::ElementCompute(p.alpha), typename Gemm::EpilogueOutputOp::ElementCompute(0)},
      p.a,
      p.b,
      p.c,
      p.c,
      p.stride_a,
      p.stride_b,
      p.stride_c,
      p.stride_c,
      p.lda,
      p.ldb,
      p.ldc,
      p.ldc};
}
#endif

} // namespace

#define TILESMITH_API extern "C" __attribute__((visibility("default")))

/// Bytes of workspace that the problem takes here, or -1 if the kernel does not compute it.
TILESMITH_API int64_t ts_cutlass_workspace(const Problem *problem) {
  const auto arguments = arguments_of<TILESMITH_KERNEL>(*problem);
  if (Gemm::can_implement(arguments) != cutlass::Status::kSuccess) return -1;
  return int64_t(Gemm::get_workspace_size(arguments));
}

/// Prepares the problem, with a workspace that is its own until `ts_cutlass_free`.
TILESMITH_API int ts_cutlass_prepare(const Problem *problem, void *workspace, void *stream, void **made) {
  const auto arguments = arguments_of<TILESMITH_KERNEL>(*problem);
  auto *found = new (std::nothrow) Prepared{{}, *problem, Gemm::get_workspace_size(arguments) ? workspace : nullptr};
  if (found == nullptr) return int(cutlass::Status::kErrorInternal);
  const auto status = found->gemm.initialize(arguments, workspace, static_cast<cudaStream_t>(stream));
  if (status != cutlass::Status::kSuccess) {
    delete found;
    return int(status);
  }
  *made = found;
  return 0;
}

/// Queues the product.
TILESMITH_API int ts_cutlass_run(void *prepared, void *stream) {
  auto *const found = static_cast<Prepared *>(prepared);
  const auto queue = static_cast<cudaStream_t>(stream);
#if TILESMITH_CUTLASS3
  // Stream-k counts in its workspace, and waits for exact counts: those of the last call would let it wait for ever.
  if (found->workspace != nullptr) {
    const auto cleared =
        TILESMITH_KERNEL::initialize_workspace(arguments_of<TILESMITH_KERNEL>(found->problem), found->workspace, queue);
    if (cleared != cutlass::Status::kSuccess) return int(cleared);
  }
#endif
  const auto status = found->gemm.run(queue);
  if (status != cutlass::Status::kSuccess) return int(status);
  const auto error = cudaPeekAtLastError();
  return error == cudaSuccess ? 0 : 1000 + int(error);
}

TILESMITH_API void ts_cutlass_free(void *prepared) {
  delete static_cast<Prepared *>(prepared);
}
