from opentelemetry.sdk.resources import Resource
from tests.support.simulated_nvml import python_under_nvml

from stepmeter.capture.clock import ClockAnchor
from stepmeter.conventions.resource import RESOURCE_ATTRIBUTES
from stepmeter.telemetry import resource


def keys(attributes):
    return {attribute.key: value for attribute, value in attributes.items() if value is not None}


def test_run_and_rank_come_from_the_environment():
    """Run, attempt and rank are what the launcher said."""
    found = keys(
        resource.run_attributes(
            {
                "STEPMETER_RUN_ID": "run-1",
                "STEPMETER_RUN_NAME": "demo",
                "RANK": "3",
                "WORLD_SIZE": "4",
                "LOCAL_RANK": "1",
                "TORCHELASTIC_RESTART_COUNT": "2",
            }
        )
    )

    assert tuple(
        found[f"stepmeter.{name}"] for name in ("run.id", "run.name", "rank", "world_size", "local_rank", "attempt")
    ) == ("run-1", "demo", 3, 4, 1, 2)


def test_unknown_is_absent():
    """What nobody said is absent: no name, no project, no strategy, no device, no allocator."""
    found = keys(resource.run_attributes({}))

    assert not {"stepmeter.run.name", "stepmeter.project", "stepmeter.strategy", "stepmeter.node_rank"} & set(found)
    assert resource.allocator_attributes({}) == {}


def test_allocator_configuration_is_read():
    """Backend and memory fraction are taken out of the allocator's configuration, under its old name too."""
    text = "backend:cudaMallocAsync,per_process_memory_fraction:0.5,expandable_segments:True"

    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        assert keys(resource.allocator_attributes({name: text})) == {
            "stepmeter.allocator.backend": "cudaMallocAsync",
            "stepmeter.allocator.config": text,
            "stepmeter.allocator.memory_fraction": 0.5,
        }


def test_nonsense_allocator_configuration_keeps_its_text():
    """A configuration that can't be understood is reported as it stands and nothing is made of it."""
    assert keys(resource.allocator_attributes({"PYTORCH_ALLOC_CONF": "per_process_memory_fraction:lots"})) == {
        "stepmeter.allocator.config": "per_process_memory_fraction:lots"
    }


def test_the_users_attributes_win():
    """Where the user's provider and a detector of ours disagree, the user's word stands."""
    configured = Resource({"service.name": "mine", "stepmeter.project": "theirs"}, "https://example.org/schema")

    merged = resource.step_resource(configured, ClockAnchor(1000, 10)).attributes

    assert (
        merged["service.name"],
        merged["stepmeter.project"],
        merged["stepmeter.clock.anchor_unix_ns"],
    ) == ("mine", "theirs", 1000)


def test_every_key_is_registered():
    """The detectors set nothing that the registry does not know."""
    known = {attribute.key for attribute in RESOURCE_ATTRIBUTES}
    made = resource.step_resource(Resource({}), ClockAnchor(1000, 10)).attributes

    assert not set(made) - known


def test_gpu_of_the_rank_is_described():
    """With a GPU the resource has its UUID, name, driver and limits, in bytes and watts."""
    code = (
        "from stepmeter.telemetry.resource import GpuResourceDetector as D\n"
        "print(sorted(D().detect().attributes.items()))"
    )

    found = dict(eval(python_under_nvml(code, "H100:0x1a,H100:0x1b", LOCAL_RANK="1")))  # noqa: S307 - printed above

    assert found.pop("hw.id").startswith("GPU-1")
    assert found == {
        "hw.type": "gpu",
        "hw.name": "H100",
        "hw.vendor": "NVIDIA",
        "hw.driver_version": "580.1",
        "stepmeter.gpu.memory.limit": 80_000_000_000,
        "stepmeter.gpu.power.limit": 650.0,
        "stepmeter.gpu.mig": False,
    }
