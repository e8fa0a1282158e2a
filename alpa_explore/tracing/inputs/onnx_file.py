"""ONNX files as torch modules, by the onnx2torch package (extra `onnx`).

A file holds data only; no code in it is run. ONNX does not mark trainable tensors: here every floating-point
initializer with at least one dim is trainable, as exporters write weights; scales and other scalars are constants.
"""

import os
import sys
from pathlib import Path
from types import ModuleType

from torch import nn

from alpa_explore.errors import CaptureError, MissingPackageError
from alpa_explore.store.read import open_regular

NEEDS_TORCHVISION = ("nms", "roialign")
"""Converters that import torchvision, which works only with the torch build it was made for. They are left out: they
convert the selection of boxes after a detector, which has no part in training."""


def load_onnx(path: str | os.PathLike[str]) -> nn.Module:
    """The module that an ONNX file describes, with its weights as parameters.

    MissingPackageError without the extra; CaptureError for a damaged file, and for operators that the converter does
    not support.
    """
    _import_converter()
    import onnx
    import onnx2torch

    try:
        open_regular(path).close()  # else a pipe would be waited for
        stored = onnx.load(Path(path))
        onnx.checker.check_model(stored)
    except OSError as error:
        raise CaptureError(
            "The ONNX file cannot be read",
            found=f"{path}: {error.strerror or error}",
            remedy="Give the path of a readable file.",
        ) from error
    except Exception as error:  # protobuf and the checker raise their own classes
        raise CaptureError(
            "The file is not a valid ONNX model",
            found=f"{path}: {_first_line(error)}",
            remedy="Export the model again.",
        ) from error
    try:
        module: nn.Module = onnx2torch.convert(stored)
    except Exception as error:  # whatever the converter may raise
        opset = max(entry.version for entry in stored.opset_import if entry.domain in ("", "ai.onnx"))
        raise CaptureError(
            "The ONNX model cannot be converted to torch",
            found=f"opset {opset}: {_first_line(error)}",
            remedy="Export it with opset 17 or an earlier one (`torch.onnx.export(…, opset_version=17)`); or "
            "capture the torch model itself.",
        ) from error
    for part in module.modules():
        for name, value in list(part.named_buffers(recurse=False)):
            if name.startswith("onnx_initializer") and value.is_floating_point() and value.dim():
                delattr(part, name)
                part.register_parameter(name, nn.Parameter(value.clone()))
    return module.train()


def _import_converter() -> None:
    left_out = [name for n in NEEDS_TORCHVISION if (name := f"onnx2torch.node_converters.{n}") not in sys.modules]
    sys.modules.update({name: ModuleType(name) for name in left_out})
    try:
        import onnx2torch  # noqa: F401
    except ImportError as error:
        for name in left_out:
            del sys.modules[name]
        raise MissingPackageError(
            "ONNX files are read with onnx2torch", found=str(error), remedy="pip install 'alpa-explore[onnx]'"
        ) from error


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]
