// How many fp32 multiply-adds a GPU does in a second, and nothing else: what bounds an exact fp32 product.
//
//     nvcc -O3 -std=c++17 -arch=sm_90a -o /tmp/ffma benchmarks/gpu/ffma.cu && /tmp/ffma
//
// Every thread of all SMs multiplies and adds in registers, in chains that do not wait for each other; for some numbers
// of chains and threads, prints medians over samples: TFLOP/s between two events; the clock in MHz that the first block
// saw (cycles by nanoseconds); and both together: FFMAs in a cycle of an SM (128 at most, 32 lanes of four schedulers).
// The first block ends before the others of its SM, whose warps wait for its warps: its cycles are not the kernel's.
// The last line is the fastest, as JSON. Operands hardly change, so the card draws less power than in a product.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <vector>

static void check(cudaError_t code) {
  if (code == cudaSuccess) return;
  printf("%s\n", cudaGetErrorString(code));
  exit(1);
}
constexpr int SAMPLES = 15, STEPS = 128; // FFMAs of a thread in the loop's text
struct Seen {
  long long cycles, nanoseconds;
};

__device__ long long nanoseconds() {
  long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

template <int CHAINS> __global__ void multiply(int turns, float a, float b, float *out, Seen *seen) {
  float sums[CHAINS];
  for (int i = 0; i < CHAINS; i++)
    sums[i] = threadIdx.x + i;
  a -= 1e-6f * threadIdx.x, b += 1e-6f * threadIdx.x; // in registers of their own, as a product's operands are
  const long long began = clock64(), since = nanoseconds();
#pragma unroll 1
  for (int turn = 0; turn < turns; turn++)
#pragma unroll
    for (int step = 0; step < STEPS / CHAINS; step++)
#pragma unroll
      for (int i = 0; i < CHAINS; i++)
        sums[i] = fmaf(sums[i], a, b);
  float sum = 0;
  for (int i = 0; i < CHAINS; i++)
    sum += sums[i];
  if (threadIdx.x == 0 && blockIdx.x == 0) *seen = {clock64() - began, nanoseconds() - since};
  if (sum == 12345.f) *out = sum; // it never is, which the compiler does not know
}

struct Result {
  double tflops = 0, mhz = 0, in_a_cycle = 0;
  int chains = 0, threads = 0;
};

template <int CHAINS> Result timed(int threads, int sms, float *out, Seen *seen) {
  constexpr int turns = 20000; // 20 milliseconds
  const int blocks = sms * (2048 / threads);
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin)), check(cudaEventCreate(&end));
  std::vector<Result> found;
  for (int sample = -3; sample < SAMPLES; sample++) {
    check(cudaEventRecord(begin));
    multiply<CHAINS><<<blocks, threads>>>(turns, 0.999f, 0.001f, out, seen);
    check(cudaEventRecord(end)), check(cudaEventSynchronize(end));
    float ms;
    Seen mine;
    check(cudaEventElapsedTime(&ms, begin, end));
    check(cudaMemcpy(&mine, seen, sizeof mine, cudaMemcpyDeviceToHost));
    const double all = double(turns) * STEPS * threads * blocks, mhz = 1e3 * mine.cycles / mine.nanoseconds;
    if (sample >= 0) found.push_back({2e-9 * all / ms, mhz, 1e-3 * all / (ms * mhz * sms), CHAINS, threads});
  }
  std::sort(found.begin(), found.end(), [](const Result &a, const Result &b) { return a.tflops < b.tflops; });
  const Result middle = found[SAMPLES / 2];
  printf("%7.2f TFLOP/s, %6.1f MHz, %6.2f in a cycle of an SM: %d chains, blocks of %d threads\n", middle.tflops,
         middle.mhz, middle.in_a_cycle, CHAINS, threads);
  return middle;
}

int main() {
  cudaDeviceProp card;
  check(cudaGetDeviceProperties(&card, 0));
  float *out;
  Seen *seen;
  check(cudaMalloc(&out, 4)), check(cudaMalloc(&seen, sizeof *seen));
  Result best;
  for (const int threads : {256, 512, 1024}) {
    const int sms = card.multiProcessorCount;
    for (const Result &each :
         {timed<4>(threads, sms, out, seen), timed<8>(threads, sms, out, seen), timed<16>(threads, sms, out, seen)})
      if (each.tflops > best.tflops) best = each;
  }
  printf("{\"card\": \"%s\", \"sms\": %d, \"tflops\": %.3f, \"mhz\": %.1f, \"in_a_cycle\": %.2f, \"chains\": %d, "
         "\"threads\": %d}\n",
         card.name, card.multiProcessorCount, best.tflops, best.mhz, best.in_a_cycle, best.chains, best.threads);
}
