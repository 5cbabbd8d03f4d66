// What arithmetic of other warps costs the products of a warpgroup (wgmma), and they it: what results of a fused kernel
// take beside the products of the next tile.
//
//     nvcc -O3 -std=c++17 -gencode arch=compute_90a,code=sm_90a -o /tmp/beside benchmarks/gpu/beside_products.cu &&
//         /tmp/beside
//
// On every SM of a Hopper GPU one warpgroup multiplies 64 x 128 x 16 in bf16, from shared memory, twelve products at a
// time, and one or two others repeat one instruction in registers, in eight chains. A line for each instruction: cycles
// of a product alone and while the others run, instructions in a cycle of a scheduler alone and while products run.
// What is said of one side beside the other is timed while the other has more to do. Medians of runs, by the clocks of
// the first SM.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

static void check(cudaError_t code) {
  if (code == cudaSuccess) return;
  printf("%s\n", cudaGetErrorString(code));
  exit(1);
}
constexpr int N = 128, AT_ONCE = 12, CHAINS = 8, STEPS = 128, RUNS = 9;
constexpr int A_BYTES = 64 * 128 * 3, BYTES = A_BYTES + N * 128 * 3; // of three blocks of 64 along k

enum Kind { FMA, ADD, MINIMUM, INTEGER, EXPONENTIAL, HALVES, ROUNDED };
static const char *const NAMES[] = {"FFMA", "FADD", "FMNMX", "SHF", "MUFU.EX2", "HFMA2", "F2FP"};

template <Kind KIND> __device__ __forceinline__ void once(float &x, float a, float b) {
  uint32_t &bits = (uint32_t &)x;
  if (KIND == FMA) asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(x) : "f"(a), "f"(b));
  if (KIND == ADD) asm volatile("add.rn.f32 %0, %0, %1;" : "+f"(x) : "f"(b));
  if (KIND == MINIMUM) asm volatile("min.f32 %0, %0, %1;" : "+f"(x) : "f"(b));
  if (KIND == INTEGER) asm volatile("shf.l.wrap.b32 %0, %0, %1, 5;" : "+r"(bits) : "r"(__float_as_uint(a)));
  if (KIND == EXPONENTIAL) asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
  if (KIND == HALVES) asm volatile("fma.rn.f16x2 %0, %0, %1, %1;" : "+r"(bits) : "r"(__float_as_uint(a)));
  if (KIND == ROUNDED) asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;" : "+r"(bits) : "f"(x), "f"(b));
}

__device__ __forceinline__ uint64_t described(uint32_t address) { // rows of 128 bytes, swizzled
  return (uint64_t)(address >> 4 & 0x3fff) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

#define TEN(X) X "0, %" X "1, %" X "2, %" X "3, %" X "4, %" X "5, %" X "6, %" X "7, %" X "8, %" X "9, %"
__device__ __forceinline__ void multiply(float (&d)[64], uint64_t a, uint64_t b) {
#define D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define D16(i) D4(i), D4(i + 4), D4(i + 8), D4(i + 12)
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %" //
               TEN("1") TEN("2") TEN("3") TEN("4") TEN("5") "60, %61, %62, %63}, %64, %65, 1, 1, 1, 0, 0;"
               : D16(0), D16(16), D16(32), D16(48)
               : "l"(a), "l"(b));
}

template <Kind KIND>
__global__ void __launch_bounds__(384) side_by_side(int products, int turns, long long *cycles, float *out) {
  extern __shared__ __align__(1024) unsigned char memory[];
  for (int i = threadIdx.x; i < BYTES / 4; i += blockDim.x) // numbers near 1 of both signs
    ((uint32_t *)memory)[i] = 0x3f803f80u | (i * 2654435761u & 0x803f803fu);
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  const int group = threadIdx.x / 128;
  const uint32_t from = (uint32_t)__cvta_generic_to_shared(memory);
  const long long began = clock64();
  float sum = 0;
  if (group == 0) {
    float d[64] = {};
    for (int i = 0; i < products; i += AT_ONCE) {
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int k = 0; k < AT_ONCE; k++) {
        const uint32_t a = from + k / 4 * 64 * 128 + k % 4 * 32, b = from + A_BYTES + k / 4 * N * 128 + k % 4 * 32;
        multiply(d, described(a), described(b));
      }
      asm volatile("wgmma.commit_group.sync.aligned;\n wgmma.wait_group.sync.aligned 0;" ::: "memory");
    }
    for (float each : d)
      sum += each;
  } else {
    float x[CHAINS];
    for (int i = 0; i < CHAINS; i++)
      x[i] = threadIdx.x * 1e-3f + i;
    const float a = 1 + threadIdx.x * 1e-6f, b = 1e-3f * threadIdx.x;
    for (int turn = 0; turn < turns; turn++)
#pragma unroll
      for (int i = 0; i < STEPS; i++)
        once<KIND>(x[i % CHAINS], a, b);
    for (float each : x)
      sum += each;
  }
  if (threadIdx.x % 128 == 0 && blockIdx.x == 0) cycles[group] = clock64() - began;
  if (sum == 12345.678f) *out = sum; // it never is, which the compiler does not know
}

// Cycles of one group of warps, for so many products and turns of the others.
template <Kind KIND> static double cycles(int groups, int of, int products, int turns, int sms, long long *seen) {
  double found[RUNS];
  check(cudaFuncSetAttribute(side_by_side<KIND>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
  for (double &each : found) {
    side_by_side<KIND><<<sms, 128 * (groups + 1), BYTES>>>(products, turns, seen, nullptr);
    check(cudaGetLastError());
    check(cudaDeviceSynchronize());
    each = seen[of];
  }
  std::sort(found, found + RUNS);
  return found[RUNS / 2];
}

template <Kind KIND> static void line(int sms, long long *seen) {
  for (int groups = 1; groups < 3; groups++) {
    const int products = 200 * AT_ONCE, turns = 40, instructions = turns * STEPS * groups;
    const double alone = cycles<KIND>(groups, 0, products, 0, sms, seen) / products;
    const double beside = cycles<KIND>(groups, 0, products, 100 * turns, sms, seen) / products;
    const double rate = instructions / cycles<KIND>(groups, 1, 0, turns, sms, seen);
    const double less = instructions / cycles<KIND>(groups, 1, 20 * products, turns, sms, seen);
    printf("%-8s of %d warpgroup%s: a product takes %5.1f cycles, %5.1f beside them; %.2f of them a cycle, %.2f beside "
           "products\n",
           NAMES[KIND], groups, groups > 1 ? "s" : " ", alone, beside, rate, less);
  }
}

int main() {
  cudaDeviceProp card;
  check(cudaGetDeviceProperties(&card, 0));
  long long *seen;
  check(cudaMallocManaged(&seen, 3 * sizeof *seen));
  printf("%s, products of 64 x %d x 16 in bf16\n", card.name, N);
  const int sms = card.multiProcessorCount;
  line<FMA>(sms, seen), line<ADD>(sms, seen), line<MINIMUM>(sms, seen), line<INTEGER>(sms, seen);
  line<EXPONENTIAL>(sms, seen), line<HALVES>(sms, seen), line<ROUNDED>(sms, seen);
}
