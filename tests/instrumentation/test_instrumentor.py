from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from tests.support.training import loader, loss_of, model, seen, update
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from stepmeter.capture.step import Recorder
from stepmeter.instrumentation import succession
from stepmeter.instrumentation.instrumentor import hook_torch, install, installed, uninstall

PLACES = [
    (DataLoader, "__iter__"),
    (_BaseDataLoaderIter, "__next__"),
    (torch.autograd, "backward"),
    (GradScaler, "step"),
    (Optimizer, "__init__"),
    (Optimizer, "add_param_group"),
    (nn.Module, "compile"),
    (torch.cuda, "memory_stats_as_nested_dict"),
    (torch.cuda, "reset_peak_memory_stats"),
    (torch.cuda.memory, "memory_stats_as_nested_dict"),
    (torch.cuda.memory, "reset_peak_memory_stats"),
]


def standing():
    from torch.optim import optimizer

    hooks = [*optimizer._global_optimizer_pre_hooks.values(), *optimizer._global_optimizer_post_hooks.values()]
    return [vars(owner)[name] for owner, name in PLACES], hooks


def test_uninstall_restores_identical_objects():
    """After uninstall every attribute is the object that it was, and no hook and no slot is left."""
    before, hooks = standing()
    net = model()
    recorder = Recorder()
    install(recorder)
    install(recorder)
    during, _ = standing()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for batch in loader(2):
        update(net, optimizer, batch)
    uninstall()
    uninstall()
    after, hooks_after = standing()
    assert all(one is other for one, other in zip(before, after, strict=True))
    assert not any(one is other for one, other in zip(before, during, strict=True))
    assert hooks_after == hooks
    assert not any("_compiled_call_impl" in module.__dict__ for module in net.modules())


def test_switching_on_twice_is_switching_on_once(recorder):
    """A change that stands already is not made over itself, so that undoing it once undoes it."""
    switches = installed().switches
    once = standing()

    for switch in switches:
        switch.on()

    assert standing() == once
    for switch in switches:
        switch.off()
    now = standing()
    assert not now[1]
    assert not any(mine is theirs for mine, theirs in zip(now[0], once[0], strict=True))


def test_all_or_nothing(monkeypatch):
    """When one patch can't be made, none stays."""
    from stepmeter.instrumentation import optimizer

    def fail(self):
        raise OSError("no hooks today")

    monkeypatch.setattr(optimizer.Hooks, "on", fail)
    before, _ = standing()
    with pytest.raises(OSError, match="no hooks"):
        install(Recorder())
    after, _ = standing()
    assert all(one is other for one, other in zip(before, after, strict=True))


def test_hook_reports_failure(monkeypatch):
    """A failure to install is reported and does not reach the program that imports torch."""
    from stepmeter.instrumentation import optimizer

    def fail(self):
        raise OSError("no hooks today")

    monkeypatch.setattr(optimizer.Hooks, "on", fail)
    faults = []
    recorder = Recorder()
    recorder.on_fault = lambda kind, error: faults.append((kind, str(error)))
    hook_torch(recorder)
    assert faults == [("install", "no hooks today")]


def test_hook_waits_for_torch():
    """Hooking does not import torch; once the program does, it is watched."""
    code = (
        "import sys\n"
        "from stepmeter.capture.step import Recorder\n"
        "from stepmeter.instrumentation.instrumentor import hook_torch\n"
        "hook_torch(Recorder())\n"
        "assert 'torch' not in sys.modules\n"
        "import torch\n"
        "assert torch.autograd.backward.__module__ == 'torch.autograd'\n"
        "print(hasattr(torch.autograd.backward, '__wrapped__'))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("True\n", "")


def train(steps, watch):
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.5), nn.Linear(16, 1))
    recorder = Recorder()
    if watch:
        install(recorder, strict=True)
    try:
        optimizer = torch.optim.AdamW(net.parameters())
        losses = [update(net, optimizer, batch) for _ in range(4) for batch in loader(steps // 4, shuffle=True)]
    finally:
        if watch is not None:
            uninstall()
    return losses, [parameter.clone() for parameter in net.parameters()]


def test_training_is_bit_identical():
    """Losses and weights are the same to the bit with and without us."""
    losses, weights = train(40, watch=False)
    watched_losses, watched_weights = train(40, watch=True)
    assert losses == watched_losses
    assert all(torch.equal(one, other) for one, other in zip(weights, watched_weights, strict=True))


def test_other_threads_are_nobodys_step(recorder):
    """Batches that another thread reads while this one trains are not charged to a step."""
    import threading

    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for batch in loader(3):
        reader = threading.Thread(target=lambda: list(loader(2)))
        reader.start()
        reader.join()
        update(net, optimizer, batch)
    assert [step["input_wait"] for step in seen(recorder)] == [1, 1, 1]


def test_training_in_a_thread(recorder):
    """A thread that trains after the main one has trained becomes the thread whose steps count."""
    import threading

    def train():
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for batch in loader(4):
            update(net, optimizer, batch)

    train()
    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert len(seen(recorder)) == 8


@pytest.mark.parametrize("beside", ["inference", "forwards with gradients", "training"])
def test_a_thread_beside_costs_no_step(recorder, beside):
    """All 200 steps are whole while another thread calls the same model, or trains one of its own."""
    import sys
    import threading

    net, end = model(), threading.Event()

    def work():
        own = model() if beside == "training" else net
        optimizer = torch.optim.SGD(own.parameters(), 0.1)
        while not end.is_set():
            with torch.set_grad_enabled(beside != "inference"):
                result = own(torch.randn(2, 4))
            if beside == "training":
                result.sum().backward()
                optimizer.step()

    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    thread = threading.Thread(target=work)
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # threads meet at every place
    try:
        for number, batch in enumerate(loader(200)):
            if number == 20:
                thread.start()
            if number == 190:  # it would take over where this loop ends
                end.set()
                thread.join()
            update(net, optimizer, batch)
    finally:
        end.set()
        sys.setswitchinterval(interval_s)
    steps = seen(recorder)
    assert len(steps) == 200
    assert {(s["input_wait"], s["forward"], s["backward"], s["optimizer"]) for s in steps} == {(1, 1, 1, 1)}


def test_a_loop_without_a_loader_is_over_when_it_rests(recorder, monkeypatch):
    """A thread that trains on after the first one rests has whole steps from its first on."""
    import threading

    def train():
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(4):
            optimizer.zero_grad()
            net(torch.randn(2, 4)).sum().backward()
            optimizer.step()

    train()
    monkeypatch.setattr(succession, "_IDLE_NS", 0)
    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    steps = seen(recorder)
    assert [step["forward"] for step in steps] == [1] * 8


def test_trace_by_hand_is_not_needed_for_loss_modules(recorder):
    """A loss module outside the model, without parameters, stays in the residual."""
    net, criterion = model(), nn.MSELoss()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for inputs, wanted in loader(3):
        optimizer.zero_grad()
        criterion(net(inputs), wanted).backward()
        optimizer.step()
    assert [step["forward"] for step in seen(recorder)] == [1, 1, 1]
    assert loss_of(net, (inputs, wanted)).item() >= 0


def test_armed_by_the_first_optimizer(recorder):
    """The recorder says once that training is about to begin: when the first optimizer is made, before any step."""
    calls = []
    recorder.on_armed = lambda: calls.append(recorder.steps)
    net = model()
    assert calls == []
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    assert calls == [0]
    torch.optim.SGD(net.parameters(), 0.1)
    for batch in loader(2):
        update(net, optimizer, batch)
    assert calls == [0]
