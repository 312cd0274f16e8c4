// Stands in for libnvidia-ml.so.1 in tests.
#include <cstdio>
#include <cstdlib>

extern "C" {

struct nvmlMemory {
  unsigned long long total, free, used;
};

int nvmlInit_v2() { return std::getenv("FAKE_NVML_BROKEN") == nullptr ? 0 : 9; }
int nvmlShutdown() { return 0; }
int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  std::snprintf(text, length, "550.1");
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (index == 1) return 15;  // lost
  static int the_gpu = 0;
  *device = &the_gpu;
  return 0;
}
int nvmlDeviceGetName(void*, char* text, unsigned length) {
  std::snprintf(text, length, "Test GPU");
  return 0;
}
int nvmlDeviceGetUUID(void*, char* text, unsigned length) {
  std::snprintf(text, length, "GPU-0123");
  return 0;
}
int nvmlDeviceGetMemoryInfo(void*, nvmlMemory* memory) {
  *memory = {80ULL << 30, 80ULL << 30, 0};
  return 0;
}

}  // extern "C"
