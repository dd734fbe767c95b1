/* A simulated libnvidia-ml.so.1, loaded by the real nvidia-ml-py in tests.
 *
 * SIMNVML_GPUS="H100:0x1b,H100:0x1a"   one GPU for each entry, in NVML's order: product name and PCI bus
 * SIMNVML_FAIL="nvmlDeviceGetName=3"   what a function returns instead of succeeding (3 not supported, 15 lost, 999 unknown)
 * SIMNVML_FIELD_FAIL="186=3"           the same for one field of nvmlDeviceGetFieldValues
 * SIMNVML_POWER="600:0.05,100:0.02"    power over time in W:s, repeated for ever; "@file" reads the same from a file
 * SIMNVML_ORIGIN_NS                    when that begins, on the monotonic clock; 0 unless given
 * SIMNVML_ARCH=9                       architecture id: 4 Pascal (no counter), 5 Volta, 7 Ampere, 8 Ada, 9 Hopper
 * SIMNVML_PERIOD_MS=100 _PHASE_MS=0 _JITTER_MS=0 _SHIFT_MS=0
 *                                      when the energy counter moves; every GPU `shift` later than the one before it
 * SIMNVML_MIG=1                        each GPU is cut into one MIG instance
 * SIMNVML_THROTTLE=0                   bits of why clocks are held down
 * SIMNVML_LATENCY_US=0                 what every call takes
 * SIMNVML_CONTROL=file                 `struct control`, which a test writes while the library is in use
 *
 * GPU i has UUID GPU-<i>0000000-0000-0000-0000-000000000000, 80 GB of memory and an enforced limit of 650 W; its
 * power is 400 W unless scripted. The counter holds the exact integral of the script at its last tick.
 */
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, LOST = 15 };
enum { PASCAL = 4, VOLTA = 5, AMPERE = 7 };
#define MAX_GPUS 16
#define MAX_PIECES 200000
#define ENTER(name) do { int code = scripted(#name); if (code) return code; if (!users) return UNINITIALIZED; } while (0)
#define ENTER_DEVICE(name, gpu) do { ENTER(name); if (is_lost(gpu)) return LOST; } while (0)

struct gpu { char name[64]; unsigned bus; unsigned index; int mig; };
static struct gpu gpus[MAX_GPUS], instances[MAX_GPUS];
static unsigned count;
static int users;

/* All zero means: the real clock, no failure. */
struct control {
    volatile int64_t now_ns;    /* virtual clock; 0 = the monotonic clock */
    volatile int64_t reload_ns; /* the driver was reloaded then: the counter began again at 0 */
    volatile int32_t fail_code; /* what every call returns */
    volatile uint32_t lost;     /* bit i: GPU i has fallen off the bus */
};
static struct control *control;

static struct { double watts, from_s, from_j; } pieces[MAX_PIECES + 1];
static unsigned piece_count;
static double cycle_s, cycle_j, origin_s;
static double period_s, phase_s, jitter_s, shift_s;
static int architecture, has_mig, latency_us;

typedef struct { char busIdLegacy[16]; unsigned domain, bus, device, pciDeviceId, pciSubSystemId; char busId[32]; } pci_info;
typedef struct { unsigned long long total, free, used; } memory_info;
typedef struct { unsigned gpu, memory; } utilization;
typedef union { double d; unsigned ui; unsigned long long ull; } value_t;
typedef struct { unsigned field, scope; long long timestamp_us, latency_us; int type, code; value_t value; } field_value;
typedef struct { unsigned long long at_us; value_t value; } sample_t;
typedef struct { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; } process_info;

static int code_in(const char *script, const char *key) {
    const char *found = script ? strstr(script, key) : NULL;
    size_t length = strlen(key);
    return found && found[length] == '=' ? atoi(found + length + 1) : SUCCESS;
}

static int scripted(const char *function) {
    if (latency_us) usleep((unsigned)latency_us);
    if (control && control->fail_code) return control->fail_code;
    return code_in(getenv("SIMNVML_FAIL"), function);
}

static int is_lost(const struct gpu *gpu) { return control && (control->lost >> gpu->index & 1); }

static double number(const char *name, double otherwise) {
    const char *text = getenv(name);
    return text && *text ? atof(text) : otherwise;
}

/* ---- power and energy over time ---- */

static void read_pieces(const char *text) {
    cycle_s = cycle_j = 0;
    for (piece_count = 0; *text && piece_count < MAX_PIECES; piece_count++) {
        char *end;
        double watts = strtod(text, &end), seconds = *end == ':' ? strtod(end + 1, &end) : 1;
        if (end == text) break;
        pieces[piece_count].watts = watts;
        pieces[piece_count].from_s = cycle_s;
        pieces[piece_count].from_j = cycle_j;
        cycle_s += seconds;
        cycle_j += watts * seconds;
        text = *end ? end + 1 : end;
    }
}

static void load_power(void) {
    const char *script = getenv("SIMNVML_POWER");
    if (!script || !*script) script = "400:1";
    if (*script != '@') { read_pieces(script); return; }
    FILE *file = fopen(script + 1, "r");
    if (!file) abort();
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    char *text = calloc((size_t)size + 1, 1);
    if (!text || fread(text, 1, (size_t)size, file) != (size_t)size) abort();
    fclose(file);
    read_pieces(text);
    free(text);
}

static double now_s(void) {
    if (control && control->now_ns) return control->now_ns * 1e-9;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static double energy_j(double at_s) { /* from the origin */
    double since_s = at_s - origin_s, cycles = floor(since_s / cycle_s);
    double rest_s = since_s - cycles * cycle_s;
    unsigned low = 0, high = piece_count;
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        if (pieces[middle].from_s <= rest_s) low = middle; else high = middle;
    }
    return cycles * cycle_j + pieces[low].from_j + (rest_s - pieces[low].from_s) * pieces[low].watts;
}

static double mean_mw(double to_s, double window_s) {
    return (energy_j(to_s) - energy_j(to_s - window_s)) / window_s * 1e3;
}

static double tick_s(double number, const struct gpu *gpu) {
    uint64_t mixed = ((uint64_t)(int64_t)number * 0x9E3779B97F4A7C15ull) ^ (gpu->index * 0xD1B54A32D192ED03ull);
    mixed = (mixed ^ (mixed >> 31)) * 0xBF58476D1CE4E5B9ull;
    double unit = (double)(mixed >> 11) / 9007199254740992.0;
    return phase_s + gpu->index * shift_s + number * period_s + (2 * unit - 1) * jitter_s;
}

static double last_tick_s(const struct gpu *gpu) {
    double now = now_s(), tick = floor((now - phase_s - gpu->index * shift_s) / period_s) + 1;
    while (tick_s(tick, gpu) > now) tick--;
    return tick_s(tick, gpu);
}

static unsigned long long counter_mj(const struct gpu *gpu, double *at_s) {
    *at_s = last_tick_s(gpu);
    double from_s = control && control->reload_ns ? control->reload_ns * 1e-9 : origin_s - 1e6;
    double joules = energy_j(*at_s) - energy_j(from_s);
    return joules > 0 ? (unsigned long long)(joules * 1e3) : 0;
}

/* Refresh and averaging window of the power readings as published for each architecture: ms of every 100 ms (20 ms
 * before Turing); "usage" is a 1 s average from Ampere consumer boards on. */
static double power_refresh_s(double *at_s) {
    double refresh_s = architecture <= VOLTA ? 0.02 : 0.1;
    *at_s = floor(now_s() / refresh_s) * refresh_s;
    return refresh_s;
}

static unsigned instant_mw(double *at_s) {
    power_refresh_s(at_s);
    double window_s = architecture <= VOLTA ? 0.01 : architecture == AMPERE || architecture >= 9 ? 0.025 : 0.1;
    return (unsigned)(mean_mw(*at_s, window_s) + 0.5);
}

static unsigned average_mw(double *at_s) { power_refresh_s(at_s); return (unsigned)(mean_mw(*at_s, 1) + 0.5); }

/* ---- the library ---- */

static int put(char *out, unsigned size, const char *text) {
    if (strlen(text) >= size) return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return SUCCESS;
}

static void uuid_of(const struct gpu *gpu, char out[48]) {
    snprintf(out, 48, "%s-%x0000000-0000-0000-0000-000000000000", gpu->mig ? "MIG" : "GPU", gpu->index);
}

static void open_control(void) {
    const char *path = getenv("SIMNVML_CONTROL");
    int file = path ? open(path, O_RDWR) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    control = page == MAP_FAILED ? NULL : page;
    close(file);
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (!control) open_control();
    int code = scripted("nvmlInitWithFlags");
    if (code) return code;
    char script[512];
    snprintf(script, sizeof script, "%s", getenv("SIMNVML_GPUS") ? getenv("SIMNVML_GPUS") : "");
    count = 0;
    for (char *rest, *entry = strtok_r(script, ",", &rest); entry && count < MAX_GPUS; entry = strtok_r(NULL, ",", &rest)) {
        if (sscanf(entry, "%63[^:]:%x", gpus[count].name, &gpus[count].bus) != 2) continue;
        gpus[count].index = count;
        instances[count] = gpus[count];
        instances[count].mig = 1;
        count++;
    }
    origin_s = number("SIMNVML_ORIGIN_NS", 0) * 1e-9;
    period_s = number("SIMNVML_PERIOD_MS", 100) / 1e3;
    phase_s = number("SIMNVML_PHASE_MS", 0) / 1e3;
    jitter_s = number("SIMNVML_JITTER_MS", 0) / 1e3;
    shift_s = number("SIMNVML_SHIFT_MS", 0) / 1e3;
    architecture = (int)number("SIMNVML_ARCH", 9);
    has_mig = (int)number("SIMNVML_MIG", 0);
    latency_us = (int)number("SIMNVML_LATENCY_US", 0);
    load_power();
    users++;
    return SUCCESS;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) { ENTER(nvmlShutdown); users--; return SUCCESS; }

const char *nvmlErrorString(int code) { return code == 999 ? "Unknown Error" : "scripted error"; }

int nvmlSystemGetDriverVersion(char *out, unsigned size) { ENTER(nvmlSystemGetDriverVersion); return put(out, size, "580.1"); }

int nvmlSystemGetCudaDriverVersion_v2(int *out) { ENTER(nvmlSystemGetCudaDriverVersion_v2); *out = 13000; return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned *out) { ENTER(nvmlDeviceGetCount_v2); *out = count; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct gpu **out) {
    ENTER(nvmlDeviceGetHandleByIndex_v2);
    if (index >= count) return INVALID_ARGUMENT;
    if (is_lost(&gpus[index])) return LOST;
    *out = &gpus[index];
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, struct gpu **out) {
    ENTER(nvmlDeviceGetHandleByUUID);
    for (unsigned index = 0; index < count; index++) {
        char own[48];
        uuid_of(&gpus[index], own);
        if (!strcmp(own, uuid)) { *out = &gpus[index]; return is_lost(*out) ? LOST : SUCCESS; }
        uuid_of(&instances[index], own);
        if (has_mig && !strcmp(own, uuid)) { *out = &instances[index]; return SUCCESS; }
    }
    return NOT_FOUND;
}

int nvmlDeviceGetUUID(struct gpu *gpu, char *out, unsigned size) {
    ENTER_DEVICE(nvmlDeviceGetUUID, gpu);
    char uuid[48];
    uuid_of(gpu, uuid);
    return put(out, size, uuid);
}

int nvmlDeviceGetIndex(struct gpu *gpu, unsigned *out) { ENTER_DEVICE(nvmlDeviceGetIndex, gpu); *out = gpu->index; return SUCCESS; }

int nvmlDeviceGetName(struct gpu *gpu, char *out, unsigned size) { ENTER_DEVICE(nvmlDeviceGetName, gpu); return put(out, size, gpu->name); }

int nvmlDeviceGetArchitecture(struct gpu *gpu, unsigned *out) {
    ENTER_DEVICE(nvmlDeviceGetArchitecture, gpu);
    *out = (unsigned)architecture;
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(struct gpu *gpu, int *major, int *minor) {
    ENTER_DEVICE(nvmlDeviceGetCudaComputeCapability, gpu);
    *major = architecture, *minor = 0;
    return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(struct gpu *gpu, pci_info *out) {
    ENTER_DEVICE(nvmlDeviceGetPciInfo_v3, gpu);
    memset(out, 0, sizeof *out);
    out->bus = gpu->bus;
    snprintf(out->busId, sizeof out->busId, "00000000:%02X:00.0", gpu->bus);
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(struct gpu *gpu, memory_info *out) {
    ENTER_DEVICE(nvmlDeviceGetMemoryInfo, gpu);
    *out = (memory_info){80000000000ull, 70000000000ull, 10000000000ull};
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(struct gpu *gpu, utilization *out) {
    ENTER_DEVICE(nvmlDeviceGetUtilizationRates, gpu);
    if (gpu->mig || has_mig) return NOT_SUPPORTED;
    *out = (utilization){75, 40};
    return SUCCESS;
}

int nvmlDeviceGetTemperature(struct gpu *gpu, int sensor, unsigned *out) {
    ENTER_DEVICE(nvmlDeviceGetTemperature, gpu);
    if (sensor) return INVALID_ARGUMENT;
    *out = 60;
    return SUCCESS;
}

int nvmlDeviceGetTotalEnergyConsumption(struct gpu *gpu, unsigned long long *out) {
    ENTER_DEVICE(nvmlDeviceGetTotalEnergyConsumption, gpu);
    if (gpu->mig || architecture < VOLTA) return NOT_SUPPORTED;
    double at_s;
    *out = counter_mj(gpu, &at_s);
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(struct gpu *gpu, unsigned *out) {
    ENTER_DEVICE(nvmlDeviceGetPowerUsage, gpu);
    if (gpu->mig) return NOT_SUPPORTED;
    double at_s;
    *out = architecture > AMPERE ? average_mw(&at_s) : instant_mw(&at_s);
    return SUCCESS;
}

int nvmlDeviceGetFieldValues(struct gpu *gpu, int length, field_value *out) {
    ENTER_DEVICE(nvmlDeviceGetFieldValues, gpu);
    for (field_value *field = out; field < out + length; field++) {
        double at_s = now_s();
        char key[16];
        snprintf(key, sizeof key, "%u", field->field);
        field->code = gpu->mig || field->scope ? NOT_SUPPORTED : code_in(getenv("SIMNVML_FIELD_FAIL"), key);
        field->latency_us = latency_us;
        field->type = 1;
        field->value.ull = 0;
        if (field->code) continue;
        switch (field->field) {
        case 83: case 191:
            if (architecture < VOLTA) field->code = NOT_SUPPORTED;
            else field->type = 3, field->value.ull = counter_mj(gpu, &at_s);
            break;
        case 185: field->value.ui = average_mw(&at_s); break;
        case 186: field->value.ui = instant_mw(&at_s); break;
        default: field->code = NOT_SUPPORTED;
        }
        field->timestamp_us = (long long)(now_s() * 1e6); /* the time of the call, not of the tick */
    }
    return SUCCESS;
}

int nvmlDeviceGetEnforcedPowerLimit(struct gpu *gpu, unsigned *out) {
    ENTER_DEVICE(nvmlDeviceGetEnforcedPowerLimit, gpu);
    *out = 650000;
    return SUCCESS;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(struct gpu *gpu, unsigned long long *out) {
    ENTER_DEVICE(nvmlDeviceGetCurrentClocksThrottleReasons, gpu);
    *out = (unsigned long long)number("SIMNVML_THROTTLE", 0);
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(struct gpu *gpu, unsigned *length, process_info *out) {
    ENTER_DEVICE(nvmlDeviceGetComputeRunningProcesses_v3, gpu);
    unsigned found = (unsigned)number("SIMNVML_PROCESSES", 0), room = *length;
    *length = found;
    if (found > room) return INSUFFICIENT_SIZE;
    for (unsigned index = 0; index < found; index++) out[index] = (process_info){1000000 + index, 1 << 30, ~0u, ~0u};
    return SUCCESS;
}

/* ---- MIG ---- */

int nvmlDeviceGetMigMode(struct gpu *gpu, unsigned *current, unsigned *pending) {
    ENTER_DEVICE(nvmlDeviceGetMigMode, gpu);
    if (gpu->mig) return INVALID_ARGUMENT;
    *current = *pending = (unsigned)has_mig;
    return SUCCESS;
}

int nvmlDeviceIsMigDeviceHandle(struct gpu *gpu, unsigned *out) { ENTER_DEVICE(nvmlDeviceIsMigDeviceHandle, gpu); *out = (unsigned)gpu->mig; return SUCCESS; }

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(struct gpu *gpu, struct gpu **out) {
    ENTER_DEVICE(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, gpu);
    if (!gpu->mig) return INVALID_ARGUMENT;
    *out = &gpus[gpu->index];
    return SUCCESS;
}
