import pytest
from tests.support.simulated_nvml import python_under_nvml

from stepmeter.devices import nvml

TWO = "H100:0x1b,H100:0x1a"
LOOK = "import os; from stepmeter.devices.nvml import find_device; print(find_device(os.environ, {rank}){field})"


def look(gpus, rank=0, field=".device.uuid", **environ):
    return python_under_nvml(LOOK.format(rank=rank, field=field), gpus, **environ)


def test_device_order_is_that_of_the_bus():
    """CUDA numbers GPUs by PCI bus where NVML numbers them as it likes: index 0 is the lower bus."""
    assert look(TWO).startswith("GPU-1")
    assert look(TWO, rank=1).startswith("GPU-0")


def test_visible_devices_choose():
    """A rank's device is the one of its place among the visible ones, not of the host's index."""
    assert look(TWO, CUDA_VISIBLE_DEVICES="1").startswith("GPU-0")
    assert look(TWO, rank=1, CUDA_VISIBLE_DEVICES="1").startswith("GPU-0")
    assert look(TWO, CUDA_VISIBLE_DEVICES="GPU-1").startswith("GPU-1")


@pytest.mark.parametrize("nonsense", ["", "nonsense", "9", "0,0", "-1"])
def test_nonsense_means_no_device(nonsense):
    """Nonsense in CUDA_VISIBLE_DEVICES is a reason, not an error."""
    assert "no visible GPU" in look(TWO, field=".reason", CUDA_VISIBLE_DEVICES=nonsense)


def test_describes_the_device():
    """Name, driver, memory in bytes and limit in watts come from NVML."""
    described = look("H100:0x1a", field=".device")

    assert "name='H100', driver_version='580.1', memory_limit_bytes=80000000000, power_limit_w=650.0" in described


def test_one_failed_query_spares_the_others():
    """A query that fails leaves its own field absent and no other."""
    described = look("H100:0x1a", field=".device", SIMNVML_FAIL="nvmlDeviceGetEnforcedPowerLimit=3")

    assert "memory_limit_bytes=80000000000, power_limit_w=None" in described


def test_mixed_gpus_without_bus_order_are_unknown():
    """With GPUs of two kinds only CUDA knows which is first, unless the order is set to the bus."""
    mixed = "A100:0x1a,H100:0x1b"

    assert "CUDA alone knows" in look(mixed, field=".reason")
    assert look(mixed, CUDA_DEVICE_ORDER="PCI_BUS_ID").startswith("GPU-0")


def test_failure_at_start_is_a_reason():
    """NVML that does not start is a reason, not an error."""
    assert look("H100:0x1a", field=".reason", SIMNVML_FAIL="nvmlInitWithFlags=999").startswith("NVML:")


def test_no_driver_is_a_reason():
    """Without an NVIDIA driver there is no device and a reason."""
    lookup = nvml.find_device({}, 0)

    assert lookup.device is not None or lookup.reason.startswith("NVML:")
