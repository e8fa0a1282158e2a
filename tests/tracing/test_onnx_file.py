"""ONNX files are captured like other models; without the extra the error names the package to install."""

import sys

import pytest
import torch

from alpa_explore.errors import CaptureError, MissingPackageError
from alpa_explore.tracing.capture import capture
from alpa_explore.tracing.inputs.onnx_file import load_onnx

TOKENS = torch.randint(0, 50, (4, 8))


def test_without_the_extra_the_error_names_the_package_to_install(monkeypatch) -> None:
    before = set(sys.modules)
    monkeypatch.setitem(sys.modules, "onnx2torch", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'alpa-explore\[onnx\]'"):
        capture("model.onnx", (TOKENS,), loss="cross_entropy")
    assert not [name for name in set(sys.modules) - before if name.startswith("onnx2torch.")]


def write(path, opset=17):
    import numpy
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    draw = numpy.random.default_rng(0)
    shapes = {
        "table": (50, 16),
        "qkv": (16, 48),
        "weight": (16,),
        "bias": (16,),
        "up": (16, 64),
        "shift": (64,),
        "down": (64, 50),
    }
    stored = {name: draw.standard_normal(shape).astype("float32") / 10 for name, shape in shapes.items()}
    stored["scale"] = numpy.array(0.25, dtype="float32")
    more = {"num_outputs": 3} if opset > 17 else {}
    nodes = [
        ("Gather", "table tokens", "x", {}),
        ("LayerNormalization", "x weight bias", "y", {"axis": -1}),
        ("MatMul", "y qkv", "p", {}),
        ("Split", "p", "q k v", {"axis": -1, **more}),
        ("Transpose", "k", "kt", {"perm": [0, 2, 1]}),
        ("MatMul", "q kt", "s", {}),
        ("Mul", "s scale", "t", {}),
        ("Softmax", "t", "a", {"axis": -1}),
        ("MatMul", "a v", "o", {}),
        ("Add", "o x", "r", {}),
        ("MatMul", "r up", "u", {}),
        ("Add", "u shift", "w", {}),
        ("Relu", "w", "h", {}),
        ("MatMul", "h down", "logits", {}),
    ]
    graph = helper.make_graph(
        [helper.make_node(kind, i.split(), o.split(), **a) for kind, i, o, a in nodes],
        "attention",
        [helper.make_tensor_value_info("tokens", TensorProto.INT64, [4, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [4, 8, 50])],
        [numpy_helper.from_array(value, name) for name, value in stored.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]), path)
    return sum(value.size for value in stored.values() if value.ndim)


def test_a_file_gives_the_values_of_the_onnx_reference_and_all_its_weights_are_trained(tmp_path) -> None:
    from onnx.reference import ReferenceEvaluator

    count = write(tmp_path / "tiny.onnx")
    (expected,) = ReferenceEvaluator(str(tmp_path / "tiny.onnx")).run(None, {"tokens": TOKENS.numpy()})
    torch.testing.assert_close(load_onnx(tmp_path / "tiny.onnx")(TOKENS), torch.from_numpy(expected))
    graph = capture(tmp_path / "tiny.onnx", (TOKENS, TOKENS), loss="cross_entropy")
    assert (graph.name, graph.parameter_count) == ("tiny", count)


@pytest.mark.parametrize("content", [b"", b"no model at all", None])
def test_a_file_that_is_not_a_model_is_an_error(tmp_path, content) -> None:
    if content is not None:
        (tmp_path / "bad.onnx").write_bytes(content)
    with pytest.raises(CaptureError, match=r"Export the model again|cannot be read"):
        capture(tmp_path / "bad.onnx", (TOKENS,), loss="cross_entropy")


def test_operators_that_the_converter_does_not_support_are_named(tmp_path) -> None:
    write(tmp_path / "new.onnx", opset=18)
    with pytest.raises(CaptureError, match=r"opset 18.*Split.*opset 17"):
        capture(tmp_path / "new.onnx", (TOKENS,), loss="cross_entropy")
