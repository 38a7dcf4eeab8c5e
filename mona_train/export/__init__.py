"""A run's network as a model file: ONNX, fp16, int8, TensorRT, and the certificate that its masks are the same."""
