"""``torch.compile(model, backend="tilesmith")``."""

from tilesmith.torch_ops.compile.backend import backend
from tilesmith.torch_ops.compile.report import Line, Report, last_report, reports

__all__ = ["Line", "Report", "backend", "last_report", "reports"]
