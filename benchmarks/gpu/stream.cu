// How long a GPU takes to read a matrix that is not in its caches, and nothing else: what bounds a product with few
// rows.
//
//     nvcc -O3 -std=c++17 -arch=sm_90a -o /tmp/stream benchmarks/gpu/stream.cu && /tmp/stream
//
// Prints, for some matrices, medians in us between two events behind a kernel that reads 128 MB: of an empty kernel, of
// plain 16-byte loads (a block a contiguous part), and of a ring of shared memory that a warp fills, with pieces of
// rows by bulk copies or with boxes of 128 bytes by tensor copies: `rows` rows a stage, `span` bytes of each.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cuda.h>
#include <cuda_runtime.h>
#include <functional>
#include <string>
#include <vector>

typedef unsigned u32;
typedef unsigned long long u64;
static void check(cudaError_t code) {
  if (code == cudaSuccess) return;
  printf("%s\n", cudaGetErrorString(code));
  exit(1);
}
constexpr int SMS = 132, SAMPLES = 30, FULL = 0, EMPTY = 64 * 8;

__device__ u32 address(const void *p) {
  return (u32)__cvta_generic_to_shared(p);
}
__device__ void expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ void arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ void wait(u32 barrier, u32 phase) {
  asm volatile(
      "{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra again; }" ::"r"(barrier),
      "r"(phase)
      : "memory");
}

__global__ void nothing() {
}
__global__ void read_all(const uint4 *from, size_t count, int *out) {
  u32 sum = 0;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) {
    const uint4 v = from[i];
    sum += v.x ^ v.y ^ v.z ^ v.w;
  }
  if (sum == 0x12345) *out = sum;
}
// For the host: it queues what is timed meanwhile.
__global__ void spin(long long cycles) {
  for (const long long begin = clock64(); clock64() - begin < cycles;)
    ;
}
__global__ void __launch_bounds__(1024) plain(const uint4 *from, size_t count, int *out) {
  const size_t part = count / gridDim.x;
  const uint4 *mine = from + blockIdx.x * part + threadIdx.x / 32 * 128 + threadIdx.x % 32;
  u32 sum = 0;
  for (size_t i = 0; i < part; i += 4096) {
    uint4 v[4];
#pragma unroll
    for (int u = 0; u < 4; u++)
      v[u] = __ldcs(mine + i + u * 32);
#pragma unroll
    for (int u = 0; u < 4; u++)
      sum += v[u].x ^ v[u].y ^ v[u].z ^ v[u].w;
  }
  if (sum == 0x12345) *out = sum;
}

template <bool TENSOR, int ROWS, int SPAN>
__global__ void __launch_bounds__(160)
    ring(const __grid_constant__ CUtensorMap map, const char *from, long long row, int rows, int stages, int *out) {
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ __align__(8) u64 barriers[128];
  const u32 base = (address(memory) + 1023) / 1024 * 1024, bars = address(barriers);
  if (threadIdx.x == 128) {
    for (int i = 0; i < stages; i++) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bars + FULL + 8 * i));
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 4;" ::"r"(bars + EMPTY + 8 * i));
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const int tiles = rows / ROWS, steps = (int)(row / SPAN), lane = threadIdx.x % 32;
  u32 stage = 0, phase = 0, sum = 0;
  for (int t = blockIdx.x; t < tiles; t += gridDim.x)
    for (int s = 0; s < steps; s++) {
      const u32 full = bars + FULL + 8 * stage, empty = bars + EMPTY + 8 * stage, to = base + stage * ROWS * SPAN;
      if (threadIdx.x < 128) {
        wait(full, phase);
        sum += *(volatile u32 *)(memory + threadIdx.x * 4);
        __syncwarp();
        if (lane == 0) arrive(empty);
      } else {
        wait(empty, phase ^ 1);
        if (lane == 0) expect(full, ROWS * SPAN);
        __syncwarp();
        if (TENSOR && lane < SPAN / 128)
          asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
                       "[%1, {%2, %3}], [%4];" ::"r"(to + lane * 128 * ROWS),
                       "l"(&map), "r"((s * SPAN + lane * 128) / 2), "r"(t * ROWS), "r"(full)
                       : "memory");
        for (int r = lane; !TENSOR && r < ROWS; r += 32)
          asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                           to + r * SPAN),
                       "l"(from + (size_t)(t * ROWS + r) * row + (size_t)s * SPAN), "r"(SPAN), "r"(full)
                       : "memory");
      }
      if (++stage == stages) stage = 0, phase ^= 1;
    }
  if (sum == 0x12345) *out = sum;
}

struct Timed {
  std::string name;
  std::function<void()> run;
  std::vector<float> us;
};

typedef CUresult (*Encode)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                           const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                           CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

template <bool TENSOR, int ROWS, int SPAN>
Timed timed_ring(Encode encode, char *from, long long row, int rows, int kib, int *out) {
  CUtensorMap map;
  const cuuint64_t sizes[] = {(cuuint64_t)row / 2, (cuuint64_t)rows}, strides[] = {(cuuint64_t)row};
  const cuuint32_t box[] = {64, ROWS}, steps[] = {1, 1};
  if (encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, from, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE))
    exit(1);
  const auto kernel = ring<TENSOR, ROWS, SPAN>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 220 * 1024));
  const int stages = kib * 1024 / (ROWS * SPAN), grid = std::min(rows / ROWS, SMS);
  const std::string name = (TENSOR ? "tensor boxes, rows " : "bulk pieces, rows ") + std::to_string(ROWS) + ", span " +
                           std::to_string(SPAN) + ", " + std::to_string(kib) + " KiB, " + std::to_string(grid) +
                           " blocks";
  return {name, [=] { kernel<<<grid, 160, kib * 1024 + 1024>>>(map, from, row, rows, stages, out); }, {}};
}

int main() {
  void *found;
  cudaDriverEntryPointQueryResult status;
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &status));
  const Encode encode = (Encode)found;
  const size_t flushed = 128 << 20, most = (size_t)128256 * 8192;
  char *other, *matrix;
  int *out;
  check(cudaMalloc(&other, flushed)), check(cudaMalloc(&matrix, most)), check(cudaMalloc(&out, 4));
  std::vector<u32> noise(16 << 20);
  for (u32 i = 0, r = 1; i < noise.size(); i++)
    noise[i] = r = r * 1664525 + 1013904223;
  for (size_t at = 0; at < most; at += noise.size() * 4)
    check(cudaMemcpy(matrix + at, noise.data(), std::min(noise.size() * 4, most - at), cudaMemcpyHostToDevice));
  check(cudaMemcpy(other, noise.data(), noise.size() * 4, cudaMemcpyHostToDevice));
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin)), check(cudaEventCreate(&end));
  const struct {
    int rows;
    long long row;
  } matrices[] = {{4096, 8192}, {11008, 8192}, {4096, 28672}, {128256, 8192}};
  for (const auto &m : matrices) {
    const size_t count = m.rows * m.row / 16;
    std::vector<Timed> all;
    all.push_back({"an empty kernel", [] { nothing<<<SMS, 128>>>(); }, {}});
    all.push_back({"plain loads", [=] { plain<<<128, 1024>>>((const uint4 *)matrix, count, out); }, {}});
    all.push_back(timed_ring<false, 8, 4096>(encode, matrix, m.row, m.rows, 192, out));
    all.push_back(timed_ring<false, 16, 2048>(encode, matrix, m.row, m.rows, 144, out));
    all.push_back(timed_ring<false, 32, 512>(encode, matrix, m.row, m.rows, 144, out));
    all.push_back(timed_ring<true, 64, 128>(encode, matrix, m.row, m.rows, 144, out));
    all.push_back(timed_ring<true, 64, 512>(encode, matrix, m.row, m.rows, 192, out));
    all.push_back(timed_ring<true, 32, 512>(encode, matrix, m.row, m.rows, 144, out));
    all.push_back(timed_ring<true, 128, 128>(encode, matrix, m.row, m.rows, 144, out));
    for (int sample = -1; sample < SAMPLES; sample++)
      for (auto &each : all) {
        read_all<<<2 * SMS, 1024>>>((const uint4 *)other, flushed / 16, out);
        spin<<<1, 32>>>(200000);
        check(cudaEventRecord(begin)), each.run(), check(cudaEventRecord(end)), check(cudaEventSynchronize(end));
        float ms;
        check(cudaEventElapsedTime(&ms, begin, end));
        if (sample >= 0) each.us.push_back(ms * 1000);
      }
    printf("%d rows of %lld bytes, %.1f MB\n", m.rows, m.row, m.rows * m.row / 1e6);
    for (auto &each : all) {
      std::sort(each.us.begin(), each.us.end());
      printf("  %8.2f  %s\n", each.us[SAMPLES / 2], each.name.c_str());
    }
  }
}
