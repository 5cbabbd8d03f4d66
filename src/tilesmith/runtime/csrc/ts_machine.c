/* What machine this is: the rules of Python's targets/detect.py and targets/detect_cuda.py. */
#if defined(__linux__)
#define _GNU_SOURCE
#endif
#include "ts_machine.h"
#include "ts_cuda.h"
#include "ts_plan.h"
#include "ts_target.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__linux__)
#include <fcntl.h>
#include <sched.h>
#include <sys/syscall.h>
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { CU_SMS = 16, CU_MAJOR = 75, CU_MINOR = 76 };

/* --- the CPU --- */

#if defined(__linux__)
/* The beginning of a system file, as text; its length, 0 if it cannot be read. */
static size_t read_text(const char *path, char *text, size_t room) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  size_t length = 0;
  ssize_t count = file < 0 ? 0 : read(file, text, room - 1);
  for (; count > 0; count = length < room - 1 ? read(file, text + length, room - 1 - length) : 0)
    length += (size_t)count;
  if (file >= 0) close(file);
  text[length] = 0;
  return length;
}
#endif

#if defined(__x86_64__)
enum { EAX, EBX, ECX, EDX };

static uint64_t enabled_registers(void) {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
}

/* Asks the system to let this process, and those that it forks, use tile registers (Linux 5.16 and later); 0 where it
 * refuses: the first use of one would end the process then. */
static int tiles_allowed(void) {
#if defined(__linux__)
  enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
  return syscall(SYS_arch_prctl, (unsigned long)ARCH_REQ_XCOMP_PERM, (unsigned long)XFEATURE_XTILEDATA) == 0;
#else
  return 0;
#endif
}

/* The features that this processor has, without those whose registers the system does not keep, or not for us. */
static uint32_t x86_features(void) {
  enum { OSXSAVE = 27, ANY = 0, AVX = 0x6, AVX512 = 0xe6, TILES = 0x60000 };
  static const struct {
    uint32_t feature, leaf, part, result, bit, registers;
  } bits[] = {
      {HAS_SSSE3, 1, 0, ECX, 9, ANY},         {HAS_FMA, 1, 0, ECX, 12, AVX},
      {HAS_CX16, 1, 0, ECX, 13, ANY},         {HAS_SSE4_1, 1, 0, ECX, 19, ANY},
      {HAS_SSE4_2, 1, 0, ECX, 20, ANY},       {HAS_MOVBE, 1, 0, ECX, 22, ANY},
      {HAS_POPCNT, 1, 0, ECX, 23, ANY},       {HAS_AVX, 1, 0, ECX, 28, AVX},
      {HAS_F16C, 1, 0, ECX, 29, AVX},         {HAS_BMI1, 7, 0, EBX, 3, ANY},
      {HAS_AVX2, 7, 0, EBX, 5, AVX},          {HAS_BMI2, 7, 0, EBX, 8, ANY},
      {HAS_AVX512F, 7, 0, EBX, 16, AVX512},   {HAS_AVX512DQ, 7, 0, EBX, 17, AVX512},
      {HAS_AVX512CD, 7, 0, EBX, 28, AVX512},  {HAS_AVX512BW, 7, 0, EBX, 30, AVX512},
      {HAS_AVX512VL, 7, 0, EBX, 31, AVX512},  {HAS_AVX512_BF16, 7, 1, EAX, 5, AVX512},
      {HAS_AMX_BF16, 7, 0, EDX, 22, TILES},   {HAS_AMX_TILE, 7, 0, EDX, 24, TILES},
      {HAS_ABM, 0x80000001u, 0, ECX, 5, ANY},
  };
  uint32_t values[4] = {0}, found = 0;
  __get_cpuid(1, &values[EAX], &values[EBX], &values[ECX], &values[EDX]);
  const uint64_t registers = values[ECX] >> OSXSAVE & 1 ? enabled_registers() : 0;
  for (size_t i = 0; i < COUNT(bits); i++) {
    if (!__get_cpuid_count(bits[i].leaf, bits[i].part, &values[EAX], &values[EBX], &values[ECX], &values[EDX]))
      continue;
    if (values[bits[i].result] >> bits[i].bit & 1 && (registers & bits[i].registers) == bits[i].registers)
      found |= bits[i].feature;
  }
  const uint32_t tiles = HAS_AMX_TILE | HAS_AMX_BF16;
  return found & tiles && !tiles_allowed() ? found & ~tiles : found;
}

static const char *find_cpu(char card[TS_CARD_LENGTH + 1]) {
  uint32_t values[4] = {0};
  char vendor[13] = "";
  __get_cpuid(0, &values[EAX], &values[EBX], &values[ECX], &values[EDX]);
  memcpy(vendor, &values[EBX], 4);
  memcpy(vendor + 4, &values[EDX], 4);
  memcpy(vendor + 8, &values[ECX], 4);
  __get_cpuid(1, &values[EAX], &values[EBX], &values[ECX], &values[EDX]);
  const uint32_t base = values[EAX] >> 8 & 0xf, family = base == 0xf ? base + (values[EAX] >> 20 & 0xff) : base;
  const uint32_t low = values[EAX] >> 4 & 0xf, model = family >= 6 ? low + (values[EAX] >> 16 & 0xf) * 16 : low;
  ts_x86_card(vendor, family, model, card);
  return ts_x86_arch(x86_features());
}

#elif defined(__aarch64__)
/* A number of /proc/cpuinfo, of the first core; -1 if it is not there. */
static long long cpuinfo_field(const char *text, const char *name) {
  const char *at = strstr(text, name);
  if (at == NULL || (at = strchr(at, ':')) == NULL) return -1;
  char *end;
  const long long value = strtoll(at + 1, &end, 16);
  return end == at + 1 || value < 0 || value > UINT32_MAX ? -1 : value;
}

static const char *find_cpu(char card[TS_CARD_LENGTH + 1]) {
  long long implementer = -1, part = -1;
#if defined(__linux__)
  char text[4096]; /* the first core's lines take about a quarter */
  if (read_text("/proc/cpuinfo", text, sizeof text) > 0) {
    implementer = cpuinfo_field(text, "CPU implementer");
    part = cpuinfo_field(text, "CPU part");
  }
  enum { READS_IDENTIFICATION = 1 << 11 }; /* HWCAP_CPUID */
  if ((implementer < 0 || part < 0) && getauxval(AT_HWCAP) & READS_IDENTIFICATION) {
    uint64_t identity;
    __asm__("mrs %0, MIDR_EL1" : "=r"(identity));
    implementer = identity >> 24 & 0xff;
    part = identity >> 4 & 0xfff;
  }
#endif
  if (implementer >= 0 && part >= 0)
    ts_arm_card((uint32_t)implementer, (uint32_t)part, card);
  else
    snprintf(card, TS_CARD_LENGTH + 1, TS_GENERIC);
  return "aarch64";
}

#else
static const char *find_cpu(char card[TS_CARD_LENGTH + 1]) {
  card[0] = 0;
  return NULL;
}
#endif

/* --- cores --- */

int64_t ts_quota_cores(const char *text) {
  char *end;
  const long long quota = strtoll(text, &end, 10);
  if (end == text) return 0;
  const long long period = strtoll(end, &end, 10);
  return quota > 0 && period > 0 ? (quota - 1) / period + 1 : 0;
}

uint32_t ts_machine_cores(void) {
  int64_t cores = 0;
#if defined(__linux__)
  unsigned long mask[8192 / (8 * sizeof(unsigned long))] = {0};
  if (sched_getaffinity(0, sizeof mask, (cpu_set_t *)mask) == 0)
    for (size_t i = 0; i < COUNT(mask); i++)
      cores += __builtin_popcountl(mask[i]);
#endif
  if (cores == 0) cores = sysconf(_SC_NPROCESSORS_ONLN);
#if defined(__linux__)
  char text[256];
  if (read_text("/sys/fs/cgroup/cpu.max", text, sizeof text) > 0) {
    const int64_t quota = ts_quota_cores(text);
    if (quota > 0 && quota < cores) cores = quota;
  }
#endif
  return cores < 1 ? 1 : cores > TS_MAX_THREADS ? TS_MAX_THREADS : (uint32_t)cores;
}

ts_status ts_machine_cpu(uint32_t cores, const char *highest, ts_target *target, ts_error *error) {
  if (target == NULL || cores > TS_MAX_THREADS)
    return ts_fail(error, TS_BAD_ARGUMENT, "the target is NULL, or %u cores are over %d", cores, TS_MAX_THREADS);
  memset(target, 0, sizeof *target);
  const char *arch = find_cpu(target->card);
  if (arch == NULL)
    return ts_fail(error, TS_NOT_FOUND,
                   "this CPU is neither aarch64 nor of x86_64-v2, the least that Tilesmith runs on");
  const char *allowed = ts_capped_arch(arch, highest);
  if (allowed == NULL) return ts_fail(error, TS_BAD_ARGUMENT, "'%.64s' is no level of x86-64 CPUs", highest);
  snprintf(target->arch, sizeof target->arch, "%s", allowed);
  target->cores = cores > 0 ? cores : ts_machine_cores();
  return TS_OK;
}

/* --- GPUs --- */

ts_status ts_machine_gpus(uint32_t *count, ts_error *error) {
  if (count == NULL) return ts_fail(error, TS_BAD_ARGUMENT, "the count of GPUs is NULL");
  *count = 0;
  const ts_driver *driver = ts_cuda_driver(error);
  if (driver == NULL) return TS_CUDA_ERROR;
  int found = 0;
  const cu_result result = driver->device_count(&found);
  if (result != 0) return ts_cuda_failed(driver, result, "count the GPUs", error);
  *count = found > 0 ? (uint32_t)found : 0;
  return TS_OK;
}

ts_status ts_machine_gpu(uint32_t device, ts_target *target, ts_error *error) {
  uint32_t count;
  const ts_status status = ts_machine_gpus(&count, error);
  if (status != TS_OK) return status;
  if (target == NULL || device >= count)
    return ts_fail(error, TS_BAD_ARGUMENT, "the target is NULL, or device %u is not one of %u GPUs", device, count);
  const ts_driver *driver = ts_cuda_driver(error);
  int handle = 0, major = 0, minor = 0, sms = 0;
  char name[257] = "";
  cu_result result = driver->device_get(&handle, (int)device);
  if (result == 0) result = driver->device_name(name, sizeof name - 1, handle);
  if (result == 0) result = driver->device_attribute(&major, CU_MAJOR, handle);
  if (result == 0) result = driver->device_attribute(&minor, CU_MINOR, handle);
  if (result == 0) result = driver->device_attribute(&sms, CU_SMS, handle);
  if (result != 0) return ts_cuda_failed(driver, result, "ask the GPU what it is", error);
  const char *arch = ts_cuda_arch(major, minor);
  if (arch == NULL || sms < 1)
    return ts_fail(error, TS_NOT_FOUND, "GPUs of compute capability %d.%d with %d SMs are not supported", major, minor,
                   sms);
  memset(target, 0, sizeof *target);
  snprintf(target->arch, sizeof target->arch, "%s", arch);
  ts_gpu_card(name, target->card);
  target->cores = (uint32_t)sms;
  target->is_cuda = 1;
  return TS_OK;
}
