"""ONNX files of optimized models and of programs with our operators, run by ONNX's reference evaluator."""

import numpy as np
import pytest
import torch
from small_nets import Block, UNet, filled, image
from torch import nn

import tilesmith
from tilesmith.torch_ops.onnx import translations


class Net(nn.Module):
    """A level down and up, a block with its shortcut, and a linear layer."""

    def __init__(self):
        super().__init__()
        self.unet, self.block, self.last = UNet(), Block(3, 8, 2), nn.Linear(8, 5)
        self.unet.up = nn.ConvTranspose2d(8, 8, 2, stride=2)  # the reference evaluator knows none in groups

    def forward(self, x):
        return self.last(self.block(self.unet(x)).mean((2, 3)))


def kinds(program):
    return [node.op_type for node in program.model.graph]


def run(program, x):
    from onnx.reference import ReferenceEvaluator

    (found,) = ReferenceEvaluator(program.model_proto).run(None, {program.model.graph.inputs[0].name: x.numpy()})
    return found


@pytest.mark.needs_onnx
def test_models_and_programs():
    fast, x = tilesmith.optimize(filled(Net())), image(2, 4, 9, 9)
    with torch.no_grad():
        want = fast(x).numpy()
        of_model = torch.onnx.export(fast, (x,), dynamo=True, verbose=False)
        program = torch.export.export(fast, (x,))
        assert any("tilesmith" in str(node.target) for node in program.graph.nodes)
        of_program = torch.onnx.export(program, dynamo=True, verbose=False, custom_translation_table=translations())
    for exported in (of_model, of_program):
        assert {"Conv", "ConvTranspose", "Concat"} <= set(kinds(exported))
        np.testing.assert_allclose(run(exported, x), want, rtol=1e-4, atol=1e-5)
