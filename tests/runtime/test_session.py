import subprocess
import sys

from tests.support.processes import clean_environ

OWN_PROVIDER = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
import stepmeter
stepmeter.instrument()
stepmeter.instrument()
import torch
"""
TRAIN = """
def train(steps):
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in torch.utils.data.DataLoader(torch.randn(steps * 2, 4), batch_size=2):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
"""


def python(code, **environ):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=clean_environ(**environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_a_provider_that_is_there_is_used():
    """`instrument()` sends steps to the exporters of the program's own provider and replaces nothing."""
    done = python(
        f"{OWN_PROVIDER}{TRAIN}\n"
        "train(5)\n"
        "from stepmeter.runtime import session\n"
        "session.stop()\n"
        "assert trace.get_tracer_provider() is provider\n"
        "print(sum(span.name == 'step' for span in exporter.get_finished_spans()))\n"
        "provider.get_tracer('user').start_span('still works').end()\n"
        "print(exporter.get_finished_spans()[-1].name)\n"
    )

    assert done.stdout == "5\nstill works\n"
    assert not done.stderr


def test_stopping_restores_everything():
    """After uninstrumenting, torch and the exporter have the identical objects that they had before."""
    done = python(
        "import torch, torch.utils.data.dataloader as d\n"
        "def snapshot():\n"
        "    holders = [torch.Tensor, torch.autograd, torch.optim.Optimizer, d.DataLoader, torch.amp.GradScaler]\n"
        "    return {(id(h), n): v for h in holders for n, v in vars(h).items()}\n"
        "before = snapshot()\n"
        f"{OWN_PROVIDER}{TRAIN}\n"
        "during = snapshot()\n"
        "train(3)\n"
        "from stepmeter.runtime import session\n"
        "session.stop(); session.stop()\n"
        "after = snapshot()\n"
        "assert set(before) == set(after)\n"
        "print([n for (h, n), v in before.items() if after[h, n] is not v], 'export' in vars(exporter))\n"
        "print(during != before)\n"
    )

    assert done.stdout == "[] False\nTrue\n"


def test_switched_off_instruments_nothing():
    """Switched off, `instrument()` makes no session, no provider and no thread."""
    done = python(
        "import stepmeter, threading\n"
        "stepmeter.instrument()\n"
        "from opentelemetry import trace\n"
        "print(type(trace.get_tracer_provider()).__name__, threading.active_count())\n",
        STEPMETER_DISABLED="1",
    )

    assert done.stdout == "ProxyTracerProvider 1\n"


def test_public_names_load_on_first_use():
    """Every public name exists and an unknown one is an ordinary AttributeError."""
    done = python(
        "import stepmeter\n"
        "assert all(callable(getattr(stepmeter, name)) for name in stepmeter.__all__)\n"
        "assert set(stepmeter.__all__) <= set(dir(stepmeter))\n"
        "try: stepmeter.nothing\n"
        "except AttributeError as error: print(error)\n"
    )

    assert done.stdout == "module 'stepmeter' has no attribute 'nothing'\n"


def test_a_program_may_say_where_its_steps_are(tmp_path):
    """`trace_step` and `wrap_loader` make steps of a loop that has no torch loader and no optimizer."""
    done = python(
        f"{OWN_PROVIDER}\n"
        "model = torch.nn.Linear(4, 1)\n"
        "for batch in stepmeter.wrap_loader([torch.ones(2, 4)] * 5):\n"
        "    with stepmeter.trace_step(model):\n"
        "        model(batch).sum().backward()\n"
        "from stepmeter.runtime import session\n"
        "session.stop()\n"
        "steps = [span for span in exporter.get_finished_spans() if span.name == 'step']\n"
        "key = 'stepmeter.phase.{}.count'.format\n"
        "print([[span.attributes.get(key(p)) for p in ('input_wait', 'forward', 'backward')] for span in steps])\n"
    )

    assert f"{[[1, 1, 1]] * 5}\n" == done.stdout


def test_explicit_steps_are_harmless_without_a_session():
    """Without instrumentation `trace_step` and `wrap_loader` only run the body, and import nothing heavy."""
    done = python(
        "import stepmeter, sys\n"
        "total = 0\n"
        "for number in stepmeter.wrap_loader([1, 2, 3]):\n"
        "    with stepmeter.trace_step():\n"
        "        total += number\n"
        "print(total, 'torch' in sys.modules, 'opentelemetry.sdk' in sys.modules)\n"
    )

    assert done.stdout == "6 False False\n"


def test_our_threads_import_nothing():
    """What our threads need is loaded before they start, so that a fork finds no module half imported in its child."""
    done = python(
        "import sys, threading, time\n"
        "found = []\n"
        "class Watch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if threading.current_thread().name.startswith('stepmeter'): found.append(name)\n"
        "sys.meta_path.insert(0, Watch())\n"
        f"{OWN_PROVIDER}{TRAIN}\n"
        "train(3); time.sleep(1.5)\n"
        "print(found)\n"
    )

    assert done.stdout == "[]\n"
