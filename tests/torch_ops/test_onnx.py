"""ONNX files of optimized models and of programs with our operators, run by ONNX's reference evaluator."""

import numpy as np
import pytest
import torch
from small_nets import ResNet, UNet, filled, image
from torch import nn

import tilesmith
from tilesmith.torch_ops.onnx import translations


def ungrouped_unet():
    """The reference evaluator knows no transposed convolutions in groups."""
    net = UNet()
    net.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
    return net


NETS = {"resnet": (ResNet, (2, 3, 12, 12)), "unet": (ungrouped_unet, (1, 4, 9, 9))}


def kinds(program):
    return [node.op_type for node in program.model.graph]


def run(program, x):
    from onnx.reference import ReferenceEvaluator

    (found,) = ReferenceEvaluator(program.model_proto).run(None, {program.model.graph.inputs[0].name: x.numpy()})
    return found


@pytest.mark.needs_onnx
@pytest.mark.parametrize("name", NETS)
def test_models_and_programs(name):
    make, shape = NETS[name]
    fast, x = tilesmith.optimize(filled(make())), image(*shape)
    with torch.no_grad():
        want = fast(x).numpy()
        of_model = torch.onnx.export(fast, (x,), dynamo=True, verbose=False)
        program = torch.export.export(fast, (x,))
        assert any("tilesmith" in str(node.target) for node in program.graph.nodes)
        of_program = torch.onnx.export(program, dynamo=True, verbose=False, custom_translation_table=translations())
    for exported in (of_model, of_program):
        assert "Conv" in kinds(exported)
        assert ("ConvTranspose" in kinds(exported)) == (name == "unet")
        np.testing.assert_allclose(run(exported, x), want, rtol=1e-4, atol=1e-5)
