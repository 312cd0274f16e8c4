// SPDX-License-Identifier: Apache-2.0

// A fake libnvidia-ml.so.1 for tests.
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
static int the_gpu = 0;
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (index != 0) return 15;  // lost
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
  memory->total = 80ull << 30;
  memory->used = 3ull << 30;
  return 0;
}

struct nvmlPci {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char bus_id[32];
};
int nvmlDeviceGetPciInfo_v3(void*, nvmlPci* info) {
  std::snprintf(info->bus_id, sizeof info->bus_id, "00000000:1B:00.0");
  return 0;
}
int nvmlDeviceGetClockInfo(void*, int type, unsigned* mhz) {
  *mhz = type == 1 ? 1200 : 1;
  return 0;
}
int nvmlDeviceGetMaxClockInfo(void*, int type, unsigned* mhz) {
  *mhz = type == 1 ? 1980 : 1;
  return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) {
  *reasons = 0x1 | 0x4 | 0x40;
  return 0;
}
int nvmlDeviceGetTemperature(void*, int, unsigned* celsius) {
  *celsius = 88;
  return 0;
}
int nvmlDeviceGetTemperatureThreshold(void*, int type, unsigned* celsius) {
  *celsius = type == 1 ? 87 : 92;
  return 0;
}
int nvmlDeviceGetEccMode(void*, unsigned* now, unsigned* pending) {
  *now = *pending = 1;
  return 0;
}
int nvmlDeviceGetTotalEccErrors(void*, int kind, int counter, unsigned long long* count) {
  if (counter != 0) return 3;
  *count = kind == 1 ? 2 : 40;
  return 0;
}
int nvmlDeviceGetRemappedRows(void*, unsigned* fixed, unsigned* unfixed, unsigned* pending,
                              unsigned* failed) {
  *fixed = *unfixed = *failed = 0;
  *pending = 1;
  return 0;
}
int nvmlDeviceGetNvLinkState(void*, unsigned link, unsigned* active) {
  if (link >= 18) return 2;  // no such link
  *active = link == 5 ? 0 : 1;
  return 0;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void*, unsigned link, nvmlPci* info) {
  std::snprintf(info->bus_id, sizeof info->bus_id, link < 4 ? "00000000:1C:00.0" : "00000000:A0:00.0");
  return 0;
}
int nvmlDeviceGetMigMode(void*, unsigned*, unsigned*) { return 3; }  // not supported by this GPU
int nvmlDeviceGetCurrPcieLinkWidth(void*, unsigned* lanes) {
  *lanes = 8;
  return 0;
}
int nvmlDeviceGetMaxPcieLinkWidth(void*, unsigned* lanes) {
  *lanes = 16;
  return 0;
}

// Reports one critical error, once.
struct nvmlEvent {
  void* device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};
static int the_events = 0;
int nvmlEventSetCreate(void** set) {
  the_events = 0;
  *set = &the_events;
  return 0;
}
int nvmlEventSetFree(void*) { return 0; }
int nvmlDeviceRegisterEvents(void*, unsigned long long types, void*) { return types == 8 ? 0 : 3; }
int nvmlEventSetWait_v2(void* set, nvmlEvent* event, unsigned) {
  if (std::getenv("FAKE_NVML_LOST") != nullptr) return 15;  // immediately
  if ((*static_cast<int*>(set))++ > 0) return 10;           // timeout
  *event = {&the_gpu, 8, 79, ~0u, ~0u};
  return 0;
}
}
