/* A simulated libnvidia-ml.so.1, loaded by the real nvidia-ml-py in tests.
 *
 * SIMNVML_GPUS="H100:0x1b,H100:0x1a"   one GPU for each entry, in NVML's order: product name and PCI bus
 * SIMNVML_FAIL="nvmlDeviceGetName=3"   what a function returns instead of succeeding (3 not supported, 15 lost, 999 unknown)
 *
 * GPU i has UUID GPU-<i>0000000-0000-0000-0000-000000000000, 80 GB of memory and an enforced limit of 650 W.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };
#define MAX_GPUS 16
#define ENTER(name) do { int code = scripted(#name); if (code) return code; if (!users) return UNINITIALIZED; } while (0)

struct gpu { char name[64]; unsigned bus; };
static struct gpu gpus[MAX_GPUS];
static unsigned count;
static int users;

typedef struct { char busIdLegacy[16]; unsigned domain, bus, device, pciDeviceId, pciSubSystemId; char busId[32]; } pci_info;
typedef struct { unsigned long long total, free, used; } memory_info;

static int scripted(const char *function) {
    const char *script = getenv("SIMNVML_FAIL");
    const char *found = script ? strstr(script, function) : NULL;
    size_t length = strlen(function);
    return found && found[length] == '=' ? atoi(found + length + 1) : SUCCESS;
}

static int put(char *out, unsigned size, const char *text) {
    if (strlen(text) >= size) return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return SUCCESS;
}

static void uuid_of(const struct gpu *gpu, char out[48]) {
    snprintf(out, 48, "GPU-%lx0000000-0000-0000-0000-000000000000", (unsigned long)(gpu - gpus));
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    int code = scripted("nvmlInitWithFlags");
    if (code) return code;
    char script[512];
    snprintf(script, sizeof script, "%s", getenv("SIMNVML_GPUS") ? getenv("SIMNVML_GPUS") : "");
    count = 0;
    for (char *entry = strtok(script, ","); entry && count < MAX_GPUS; entry = strtok(NULL, ",")) {
        if (sscanf(entry, "%63[^:]:%x", gpus[count].name, &gpus[count].bus) == 2) count++;
    }
    users++;
    return SUCCESS;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) { ENTER(nvmlShutdown); users--; return SUCCESS; }

const char *nvmlErrorString(int code) { return code == 999 ? "Unknown Error" : "scripted error"; }

int nvmlSystemGetDriverVersion(char *out, unsigned size) { ENTER(nvmlSystemGetDriverVersion); return put(out, size, "580.1"); }

int nvmlDeviceGetCount_v2(unsigned *out) { ENTER(nvmlDeviceGetCount_v2); *out = count; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct gpu **out) {
    ENTER(nvmlDeviceGetHandleByIndex_v2);
    if (index >= count) return INVALID_ARGUMENT;
    *out = &gpus[index];
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, struct gpu **out) {
    ENTER(nvmlDeviceGetHandleByUUID);
    for (unsigned index = 0; index < count; index++) {
        char own[48];
        uuid_of(&gpus[index], own);
        if (!strcmp(own, uuid)) { *out = &gpus[index]; return SUCCESS; }
    }
    return NOT_FOUND;
}

int nvmlDeviceGetUUID(struct gpu *gpu, char *out, unsigned size) {
    ENTER(nvmlDeviceGetUUID);
    char uuid[48];
    uuid_of(gpu, uuid);
    return put(out, size, uuid);
}

int nvmlDeviceGetName(struct gpu *gpu, char *out, unsigned size) { ENTER(nvmlDeviceGetName); return put(out, size, gpu->name); }

int nvmlDeviceGetPciInfo_v3(struct gpu *gpu, pci_info *out) {
    ENTER(nvmlDeviceGetPciInfo_v3);
    memset(out, 0, sizeof *out);
    out->bus = gpu->bus;
    snprintf(out->busId, sizeof out->busId, "00000000:%02X:00.0", gpu->bus);
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(struct gpu *gpu, memory_info *out) {
    ENTER(nvmlDeviceGetMemoryInfo);
    (void)gpu;
    *out = (memory_info){80000000000ull, 70000000000ull, 10000000000ull};
    return SUCCESS;
}

typedef struct { unsigned gpu, memory; } utilization;

int nvmlDeviceGetUtilizationRates(struct gpu *gpu, utilization *out) {
    ENTER(nvmlDeviceGetUtilizationRates);
    (void)gpu;
    *out = (utilization){75, 40};
    return SUCCESS;
}

int nvmlDeviceGetTemperature(struct gpu *gpu, int sensor, unsigned *out) {
    ENTER(nvmlDeviceGetTemperature);
    (void)gpu;
    if (sensor) return INVALID_ARGUMENT;
    *out = 60;
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(struct gpu *gpu, unsigned *out) {
    ENTER(nvmlDeviceGetPowerUsage);
    (void)gpu;
    *out = 400000;
    return SUCCESS;
}

int nvmlDeviceGetEnforcedPowerLimit(struct gpu *gpu, unsigned *out) {
    ENTER(nvmlDeviceGetEnforcedPowerLimit);
    (void)gpu;
    *out = 650000;
    return SUCCESS;
}
