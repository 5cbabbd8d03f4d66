// A program of C++17 that runs the deconvolution with pitched pixels.
#include <LIBRARY.hpp>

#include <cstdio>
#include <vector>

int main() {
  LIBRARY::library library;
  LIBRARY::desc problem;
  problem.transposed = 1;
  problem.layout = TS_NHWC;
  problem.n = 1, problem.c = 35, problem.k = 16;
  problem.in[0] = problem.in[1] = 12;
  problem.filter[0] = problem.filter[1] = problem.stride[0] = problem.stride[1] = 2;
  problem.y_pitch_c = 20;
  problem.bias = 1;
  if (const std::string reason = library.why_not(problem); !reason.empty()) return std::puts(reason.c_str()), 1;
  if (library.find(problem).empty()) return 2;
  const LIBRARY::plan plan = library.make_plan(problem);
  std::vector<float> x(12 * 12 * 35, 1), w(35 * 2 * 2 * 16, 1), bias(16, 3), y(24 * 24 * 20, -1);
  LIBRARY::operands tensors;
  tensors.x = x.data(), tensors.w = w.data(), tensors.bias = bias.data(), tensors.y = y.data();
  const auto packed = plan.packed(), workspace = plan.workspace();
  if (plan.needs().must_prepare) plan.prepare(tensors, packed.get(), workspace.get());
  plan.run(tensors, packed.get(), workspace.get());
  for (std::size_t i = 0; i < y.size(); i++)
    if (y[i] != (i % 20 < 16 ? 38 : -1)) return std::printf("element %zu is %g\n", i, y[i]), 3;
  try {
    problem.n = -7;
    library.make_plan(problem);
    return 4;
  } catch (const LIBRARY::error &error) {
    if (error.status() != TS_BAD_PROBLEM) return 5;
  }
  problem.n = 1;
  const ts_shape shape = LIBRARY::output_shape(problem);
  std::printf("%d x %d x %d\n", int(shape.size[1]), int(shape.size[2]), int(shape.size[3]));
  return 0;
}
