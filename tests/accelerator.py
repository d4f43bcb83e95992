"""An accelerator that is none: tensors that say they are on its device and hold their numbers on the CPU.

Where a device would refuse an operation on tensors of two devices, DeviceMismatch is raised; whenever a program would
wait for the device (a number read, a copy to the host, a shape that hangs on values), that is counted, by the line that
asks. PyTorch's own kernels do the arithmetic, so results are the CPU's, within rounding.
"""

import traceback
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_setup_privateuseone_for_python_backend("pretended")
DEVICE = torch.device("pretended", 0)
MODULE = torch.get_device_module(DEVICE)  # its random stream is the CPU's
MODULE.get_rng_state, MODULE.set_rng_state = lambda device=None: torch.zeros(0), lambda state, device=None: None
MODULE.manual_seed_all, MODULE._is_in_bad_fork = lambda seed: None, lambda: False
READS = {"_local_scalar_dense", "item", "is_nonzero", "equal"}  # a number is wanted on the host
SIZED = {"nonzero", "masked_select", "_unique2", "repeat_interleave"}  # how large the result is hangs on values
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}


class DeviceMismatch(RuntimeError):
    pass


class Remote(torch.Tensor):
    """A tensor on the device: what it holds lies in `held`."""

    @staticmethod
    def __new__(cls, held):
        layout = {"strides": held.stride(), "storage_offset": held.storage_offset(), "dtype": held.dtype}
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, device=DEVICE, **layout)

    def __init__(self, held):
        self.held = held

    def __repr__(self):
        return f"Remote({tuple(self.shape)}, {self.dtype})"

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise DeviceMismatch(f"{func} outside of `pretended`")


def is_list(value):
    return isinstance(value, list)


def far(value):
    return isinstance(value, Remote)


def held(value):
    return value.held if far(value) else torch.device("cpu") if isinstance(value, torch.device) else value


def sent(value):
    return Remote(value) if isinstance(value, torch.Tensor) and not far(value) else value


def line():
    """The line of the project that is at work."""
    for frame in reversed(traceback.extract_stack()):
        if "/lib/generate/" in frame.filename:
            return f"{Path(frame.filename).name}:{frame.lineno}"
    return "elsewhere"


def whole_values(tensors):
    """Those that are more than a number, which any device takes."""
    return [tensor for tensor in tensors if tensor.dim()]


class Work(TorchDispatchMode):
    """Every operation, in one place. `waits` counts by line what waits for the device, `loads` what is sent there."""

    def __init__(self):
        super().__init__()
        self.waits, self.loads = Counter(), Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, name = dict(kwargs or {}), func._schema.name.split("::")[1]
        tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
        there = any(map(far, tensors))
        target = next((value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.device)), None)
        if there:
            self.judge(name, args, tensors)
        if there and (name in READS or name in SIZED):
            self.waits[line()] += 1
        result = func(*tree_map(held, args), **tree_map(held, kwargs))
        if name in READS:
            return result
        if name == "copy_":
            (self.loads if far(args[0]) else self.waits)[line()] += far(args[0]) != far(args[1])
            return args[0]
        if target is not None:
            if there and target.type == "cpu":
                self.waits[line()] += 1
                return result
            if not there and target.type != "cpu" and tensors:
                self.loads[line()] += 1
            there = target.type != "cpu"
        if func._schema.is_mutable and name.endswith("_"):
            return args[0]
        if kwargs.get("out") is not None:
            return kwargs["out"]
        return tree_map(sent, result) if there else result

    def judge(self, name, args, tensors):
        """Raises DeviceMismatch where a device would refuse."""
        if name in INDEXING:
            indices = [index for index in args[1] if index is not None]
            near = whole_values(tensor for tensor in [args[0], *args[2:3]] if not far(tensor))
            self.waits[line()] += sum(index.dtype == torch.bool and far(index) for index in indices)
            if far(args[0]):
                self.loads[line()] += sum(not far(index) for index in indices)
        elif name == "copy_" or name == "_to_copy":
            return
        else:
            near = whole_values(tensor for tensor in tensors if not far(tensor))
        if near:
            raise DeviceMismatch(f"{name} at {line()}: tensors on the CPU and on the device")


class Calls(TorchFunctionMode):
    """What PyTorch does in C++ before any operation is dispatched, and would look for the device's own kernels for."""

    def __init__(self, work):
        super().__init__()
        self.work = work

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.tensor and "device" in (kwargs or {}) and torch.device(kwargs["device"]) == DEVICE:
            self.work.loads[line()] += 1
            return sent(func(*args, **kwargs | {"device": "cpu"}))
        listed = func is torch.Tensor.__getitem__ and any(map(is_list, tree_leaves(args[1], is_leaf=is_list)))
        if listed and far(args[0]):
            self.work.loads[line()] += 1  # a list of indices becomes a tensor there
            places = tree_map(lambda i: Remote(torch.tensor(i)) if is_list(i) else i, args[1], is_leaf=is_list)
            args = (args[0], places)
        if func is torch.Tensor.tolist and far(args[0]):
            self.work.waits[line()] += 1
            return args[0].held.tolist()
        if func is torch.nn.functional.scaled_dot_product_attention and any(map(far, args)):
            if not all(far(value) for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)):
                raise DeviceMismatch(f"attention at {line()}: tensors on the CPU and on the device")
            return sent(func(*tree_map(held, args), **tree_map(held, kwargs or {})))
        return func(*args, **(kwargs or {}))


@contextmanager
def pretended(monkeypatch, *models):
    """While it lasts, tensors may be on DEVICE, and these models are. Gives the counts."""
    # inference mode knows no subclasses; it differs from this in speed alone
    monkeypatch.setattr(torch.inference_mode, "__enter__", lambda self: None)
    monkeypatch.setattr(torch.inference_mode, "__exit__", lambda self, *problem: None)
    with torch.no_grad(), Work() as work, Calls(work):
        for model in models:
            move(model)
        yield work


def move(model):
    """A model's parameters and buffers on the device."""
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None:
                module._parameters[name] = torch.nn.Parameter(Remote(parameter.data), requires_grad=False)
        for name, buffer in list(module._buffers.items()):
            if buffer is not None:
                module._buffers[name] = Remote(buffer)
