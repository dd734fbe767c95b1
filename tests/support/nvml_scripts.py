"""Short programs for a process under the simulated NVML."""

READ = """
import json, mmap, struct, sys
import pynvml as nvml

nvml.nvmlInit()

def virtual(now_ns=0, reload_ns=0, code=0, lost=0):
    import os
    with open(os.environ["SIMNVML_CONTROL"], "r+b") as file:
        block = mmap.mmap(file.fileno(), 4096)
        block[:24] = struct.pack("<qqiI", now_ns, reload_ns, code, lost)

def handle(gpu=0):
    return nvml.nvmlDeviceGetHandleByIndex(gpu)

def energy(now_ms, gpu=0, **more):
    virtual(int(now_ms * 1e6), **more)
    return nvml.nvmlDeviceGetTotalEnergyConsumption(handle(gpu))

def outcome(question):
    try:
        return question()
    except nvml.NVMLError as error:
        return type(error).__name__
"""
