"""Its folder is where tests find what they share (``torch_answer``)."""
