"""Products of matrices beyond ``gemm``: of groups of rows, and of scaled fp8 operands."""
