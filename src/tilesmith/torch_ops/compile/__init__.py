"""``torch.compile(model, backend="tilesmith")``; PyTorch finds ``backend.backend`` by its entry point."""

from tilesmith.torch_ops.compile.report import Line, Report, last_report, reports

__all__ = ["Line", "Report", "last_report", "reports"]
