"""An accelerator that is none: tensors that say they are on its device and hold their numbers on
the CPU.

Where a device would refuse an operation on tensors of two devices, an error is raised; whenever a
program would wait for the device (a number read, a copy to the host, a shape that hangs on values),
that is counted. PyTorch's own kernels do the arithmetic, so results are the CPU's, within rounding.
"""

from contextlib import contextmanager

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_setup_privateuseone_for_python_backend("pretended")
DEVICE = torch.device("pretended", 0)
# a number is wanted on the host, or how large the result is hangs on values
WAITS = {
    "_local_scalar_dense",
    "item",
    "is_nonzero",
    "equal",
    "nonzero",
    "masked_select",
    "_unique2",
}
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}


class Remote(torch.Tensor):
    """A tensor on the device: what it holds lies in `held`."""

    @staticmethod
    def __new__(cls, held):
        layout = {
            "strides": held.stride(),
            "storage_offset": held.storage_offset(),
            "dtype": held.dtype,
        }
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, device=DEVICE, **layout)

    def __init__(self, held):
        self.held = held

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError(f"{func} outside of `pretended`")


def far(value):
    return isinstance(value, Remote)


def held(value):
    if far(value):
        return value.held
    return torch.device("cpu") if isinstance(value, torch.device) else value


def sent(value):
    return Remote(value) if isinstance(value, torch.Tensor) and not far(value) else value


class Work(TorchDispatchMode):
    """Every operation, in one place. `waits` counts those that wait for the device."""

    waits = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = func._schema.name.split("::")[1]
        values = tree_leaves((args, kwargs))
        is_far = any(map(far, values))
        target = next((value for value in values if isinstance(value, torch.device)), None)
        if is_far:
            to_host = target is not None and target.type == "cpu"
            if name in WAITS or to_host:
                self.waits += 1
            # indices may be on the host
            together = (args[0], *args[2:3]) if name in INDEXING else values
            refuse(name, *together)
        result = func(*tree_map(held, args), **tree_map(held, kwargs))
        if func._schema.is_mutable and name.endswith("_"):
            return args[0]
        remote = is_far if target is None else target.type != "cpu"
        return tree_map(sent, result) if remote else result


def refuse(name, *values):
    """Raises where a device would: beside one of its tensors stands one that is more than a
    number."""
    near = [
        value
        for value in values
        if isinstance(value, torch.Tensor) and value.dim() and not far(value)
    ]
    if near and name not in ("copy_", "_to_copy"):
        raise RuntimeError(f"{name}: expected all tensors to be on the same device")


class Calls(TorchFunctionMode):
    """What PyTorch does in C++ before any operation is dispatched, and would look for the device's
    own kernels for."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.tensor and "device" in kwargs and torch.device(kwargs["device"]) == DEVICE:
            return sent(func(*args, **kwargs | {"device": "cpu"}))
        is_indexed = func is torch.Tensor.__getitem__ and far(args[0])
        if is_indexed and isinstance(args[1], tuple):
            args = (args[0], tuple(map(send_list, args[1])))
        if func is torch.Tensor.tolist and far(args[0]):
            return args[0].held.tolist()
        if func is torch.nn.functional.scaled_dot_product_attention and any(map(far, args)):
            refuse("attention", *tree_leaves((args, kwargs)))
            return sent(func(*tree_map(held, args), **tree_map(held, kwargs)))
        return func(*args, **kwargs)


def send_list(index):
    """An index as the device takes it: a list becomes a tensor there."""
    return Remote(torch.tensor(index)) if isinstance(index, list) else index


@contextmanager
def pretended(monkeypatch):
    """While it lasts, tensors may be on DEVICE. Gives what counts."""
    # inference mode knows no subclasses; it differs from this in speed alone
    monkeypatch.setattr(torch.inference_mode, "__enter__", lambda self: None)
    monkeypatch.setattr(torch.inference_mode, "__exit__", lambda self, *problem: None)
    with torch.no_grad(), Work() as work, Calls():
        yield work


def move(model):
    """A model's parameters and buffers on the device."""
    model.requires_grad_(False)._apply(lambda tensor: Remote(tensor.detach()))
