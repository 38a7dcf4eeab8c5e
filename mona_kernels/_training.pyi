# The C++ module of training (csrc/training.cpp): CPU tensors, which mona_kernels.ops has checked; `Any` is a tensor.
from typing import Any

def census(
    probabilities: Any,
    labels: Any,
    confidence: Any,
    known: Any,
    counts: Any,
    keys: Any,
    asking: Any,
    queries: Any,
    likely: float,
    hard: float,
    seed: int,
    step: int,
    stream: int,
    threads: int,
) -> None: ...
def draw_keys(
    limits: Any, filled: Any, out: Any, ring: int, seed: int, step: int, stream: int, threads: int
) -> None: ...
def class_sums(levels: list[Any], known: Any, sums: Any, threads: int) -> None: ...
def class_sums_backward(levels: list[Any], known: Any, grad: Any, threads: int) -> None: ...
def pyramid_gather(levels: list[Any], pixels: Any, height: int, width: int, rows: Any, threads: int) -> None: ...
def pyramid_scatter(levels: list[Any], pixels: Any, height: int, width: int, rows: Any, threads: int) -> None: ...
def contrast_weights(
    queries: Any,
    mean: Any,
    scores: Any,
    parts: Any,
    drawn: Any,
    weight: Any,
    temperature: float,
    share: float,
    threads: int,
) -> float: ...
def contrast_gradient(queries: Any, mean: Any, weighted: Any, parts: Any, threads: int) -> None: ...
def equivariance(
    probabilities: Any,
    mask: Any,
    points: Any,
    logits: Any,
    gradient: Any,
    weights: Any,
    values: Any,
    threads: int,
) -> None: ...
def largest_pieces(labels: Any, out: Any, threads: int) -> None: ...
